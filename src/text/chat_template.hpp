// Chat templates: a model's Jinja source, parsed once, rendered to segments that keep apart what the template's author
// wrote and what came in with the request, so that a special token typed by a user is never parsed as one.
//
// The language is Jinja 2 as Hugging Face transformers runs it: the immutable sandbox, trim_blocks, lstrip_blocks, loop
// controls, the `generation` tag, tojson without HTML escaping, raise_exception and strftime_now. Nothing is read from
// disk: include, import and extends are errors. Every render is bounded by base/limits.hpp (steps, depth, output,
// memory).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace adze::text {

namespace jinja {
struct Template;
}

// A piece of rendered text, UTF-8, never empty. Neighbours differ in `literal`.
// literal: written in the template, or the value of a literal variable (bos_token ...): special tokens count in it.
// not literal: from the request, or computed (numbers); the tokenizer must read it, joined with its neighbours for the
// merges, as plain text. A special token that would straddle two segments is plain text as well.
struct Segment {
  std::string text;
  bool literal = false;
  bool operator==(const Segment&) const = default;
};

// The text of all segments, in order.
std::string join_segments(const std::vector<Segment>& segments);

// A local calendar time for strftime_now; the engine has no clock of its own. Fields as people write them.
struct CivilTime {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

// The local time of a POSIX time stamp, for callers that do have a clock.
CivilTime civil_time(long long unix_seconds);

struct RenderOptions {
  // What strftime_now formats. Absent: the template sees no strftime_now at all (`strftime_now is defined` is false).
  std::optional<CivilTime> now;
  // Input variables whose strings belong to the model, not to the request: rendered as literal text.
  std::vector<std::string> literal_variables = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                "pad_token", "cls_token", "mask_token"};
};

// Immutable and cheap to copy. Any number of threads may render one template at once.
class ChatTemplate {
 public:
  // Errors: template_error (syntax, with the line), limit_exceeded (source longer than kTemplateMaxSourceBytes).
  static Result<ChatTemplate> parse(std::string source);

  // Renders with the members of `input_json` (one JSON object, key order kept) as variables. `tools` and `documents`
  // are none when absent, as transformers passes them. Errors: template_error (what the template raised, word for word,
  // or what went wrong and the template's line), limit_exceeded (naming the limit), invalid_argument (the input is not
  // a JSON object).
  Result<std::vector<Segment>> render(std::string_view input_json, const RenderOptions& options = {}) const;

  const std::string& source() const;

  // Whether the template refers to a variable of this name that it does not set itself: "tools", "enable_thinking".
  bool uses_variable(std::string_view name) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> parsed);
  std::shared_ptr<const jinja::Template> template_;
};

// One message of a conversation. fields_json: further members as a JSON object ("{\"tool_calls\": [...]}"), or empty.
struct ChatMessage {
  std::string role;
  std::string content;
  std::string fields_json;
};

// What a chat model's template expects to see.
struct ChatInput {
  std::vector<ChatMessage> messages;
  std::string tools_json;  // a JSON array of tool definitions; empty: none
  bool add_generation_prompt = true;
  std::optional<bool> enable_thinking;  // absent: not defined, the template's own default
  std::string bos_token;
  std::string eos_token;
  std::string variables_json;  // any other variables as a JSON object; they win over the above; empty: none
};

// The JSON object for ChatTemplate::render. Text that is not UTF-8 has its bad bytes replaced by U+FFFD.
// Errors: invalid_argument, naming the field whose JSON does not parse or is of the wrong kind.
Result<std::string> to_json(const ChatInput& input);

// The ChatML template, for a model file that brings none of its own. The caller should say that it was used: it is
// right only for models trained on ChatML.
const ChatTemplate& fallback_chat_template();

}  // namespace adze::text
