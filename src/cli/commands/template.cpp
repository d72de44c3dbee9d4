#include <fmt/format.h>

#include <charconv>
#include <ctime>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/json_writer.hpp"
#include "cli/models.hpp"
#include "format/gguf.hpp"
#include "model/huggingface/vocabulary.hpp"
#include "text/chat_template.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"MODEL", "A model file with a chat template, a Jinja file (.jinja), or the name of a pulled model"}};
constexpr Option kOptions[] = {
    {"-i,--input", "FILE",
     "One JSON object: messages, tools, add_generation_prompt, bos_token, eos_token, any other variable; - reads stdin",
     ""},
    {"--segments", "", "Print a JSON array of {text, literal}: literal text may hold special tokens", ""},
    {"--date", "DATE", "What strftime_now sees: 2026-07-26 or 2026-07-26T13:05:09 (default: now)", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};
constexpr Example kExamples[] = {{"adze template smollm2 --input chat.json", "The prompt that a chat becomes"}};

// "2026-07-26" or "2026-07-26T13:05:09".
Result<text::CivilTime> parse_date(std::string_view text) {
  text::CivilTime time;
  int* const fields[] = {&time.year, &time.month, &time.day, &time.hour, &time.minute, &time.second};
  constexpr std::string_view kSeparators = "--T::";
  std::size_t read = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    const auto [next, error] = std::from_chars(at, end, *fields[read]);
    if (error != std::errc{}) break;
    at = next;
    ++read;
    if (at == end || read == std::size(fields) || *at != kSeparators[read - 1]) break;
    ++at;
  }
  const auto within = [](int value, int low, int high) { return value >= low && value <= high; };
  const bool sensible = within(time.year, 1, 9999) && within(time.month, 1, 12) && within(time.day, 1, 31) &&
                        within(time.hour, 0, 23) && within(time.minute, 0, 59) && within(time.second, 0, 60);
  if (at != end || (read != 3 && read != 6) || !sensible) {
    return fail(ErrorCode::invalid_argument, fmt::format("--date: '{}' is not a date", text),
                "Write 2026-07-26 or 2026-07-26T13:05:09.");
  }
  return time;
}

// The Jinja source of a model or of a file that is one.
Result<std::string> template_source(const Context& context, const std::string& name) {
  ADZE_TRY(const std::filesystem::path path, find_model(context, name));
  const auto missing = [&] {
    return fail(ErrorCode::not_found, fmt::format("'{}' has no chat template", path.string()),
                "Name a Jinja file instead.");
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    ADZE_TRY(std::optional<std::string> source, model::folder_chat_template(path));
    if (!source) return missing();
    return std::move(*source);
  }
  if (path.extension() != ".gguf") return read_file(path, limits::kTemplateMaxSourceBytes);
  ADZE_TRY(const format::GgufFile file, format::GgufFile::open(path));
  const auto source = file.metadata().get_string("tokenizer.chat_template");
  if (!source) return missing();
  return std::string(*source);
}

Result<ExitCode> run_template(Context& context) {
  const auto input_name = context.arguments.value("input");
  if (!input_name) {
    return fail(ErrorCode::invalid_argument, "adze template needs --input", "Name a file with one JSON object.");
  }
  ADZE_TRY(std::string source, template_source(context, *context.arguments.positional(0)));
  ADZE_TRY(const text::ChatTemplate chat_template, text::ChatTemplate::parse(std::move(source)));
  ADZE_TRY(const std::string input,
           *input_name == "-" ? read_stdin_text() : read_file(*input_name, limits::kTemplateMaxInputBytes));
  text::RenderOptions options;
  options.now = text::civil_time(static_cast<long long>(std::time(nullptr)));
  if (const auto date = context.arguments.value("date")) {
    ADZE_TRY(options.now, parse_date(*date));
  }
  ADZE_TRY(const std::vector<text::Segment> segments, chat_template.render(input, options));
  if (!context.arguments.has("segments")) {
    context.console.print(text::join_segments(segments));
    return ExitCode::ok;
  }
  JsonWriter json;
  json.begin_array();
  for (const text::Segment& segment : segments) {
    json.begin_object().field("text", segment.text).field("literal", segment.literal).end_object();
  }
  context.console.print(json.end_array().take());
  return ExitCode::ok;
}

}  // namespace

constinit const Command kTemplate{.name = "template",
                                  .summary = "Render a chat template",
                                  .description = {},
                                  .positionals = kPositionals,
                                  .options = kOptions,
                                  .settings = kSettings,
                                  .examples = kExamples,
                                  .run = run_template};

}  // namespace adze::cli
