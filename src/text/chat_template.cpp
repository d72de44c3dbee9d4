#include "text/chat_template.hpp"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "text/jinja/ast.hpp"
#include "text/jinja/evaluator.hpp"
#include "text/jinja/input.hpp"

namespace adze::text {
namespace {

Error to_error(jinja::Failure failure) {
  if (failure.code == ErrorCode::invalid_argument) return {failure.code, std::move(failure.message), {}};
  // What a template says to its caller is passed on word for word.
  if (failure.type == "TemplateError")
    return {failure.code, std::move(failure.message), "the model's chat template refuses this conversation"};
  std::string message = failure.type.empty() ? std::move(failure.message) : failure.type + ": " + failure.message;
  if (failure.line > 0) message += fmt::format(" (line {} of the chat template)", failure.line);
  return {failure.code, std::move(message),
          "check the messages against what the model's chat template expects, or pass another template"};
}

// Runs `work`, and turns everything it may throw into an error.
template <class F>
auto at_the_wall(const F& work) -> Result<decltype(work())> {
  try {
    return work();
  } catch (jinja::Failure& failure) {
    return tl::unexpected<Error>(to_error(std::move(failure)));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "no memory left to render the chat template");
  } catch (const std::exception& error) {
    return fail(ErrorCode::template_error, fmt::format("the chat template failed: {}", error.what()));
  }
}

std::vector<Segment> split_segments(const std::string& text, const std::vector<jinja::Run>& runs) {
  std::vector<Segment> out;
  std::size_t from = 0;
  for (const jinja::Run& run : runs) {
    out.push_back({text.substr(from, run.end - from), run.origin == jinja::Origin::literal});
    from = run.end;
  }
  return out;
}

}  // namespace

std::string join_segments(const std::vector<Segment>& segments) {
  std::string out;
  for (const Segment& segment : segments) out += segment.text;
  return out;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Template> parsed) : template_(std::move(parsed)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  if (source.size() > limits::kTemplateMaxSourceBytes)
    return fail(ErrorCode::limit_exceeded, fmt::format("the chat template has {} bytes, more than the limit of {}",
                                                       source.size(), limits::kTemplateMaxSourceBytes));
  ADZE_TRY(auto parsed, at_the_wall([&] { return jinja::parse_template(std::move(source)); }));
  return ChatTemplate(std::move(parsed));
}

const std::string& ChatTemplate::source() const { return template_->source; }

bool ChatTemplate::uses_variable(std::string_view name) const {
  const auto& names = template_->context_variables;
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::vector<Segment>> ChatTemplate::render(std::string_view input_json, const RenderOptions& options) const {
  return at_the_wall([&] {
    jinja::Evaluator evaluator(*template_);
    if (options.now) {
      const CivilTime& t = *options.now;
      const bool valid = t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 && t.hour >= 0 && t.hour <= 23 &&
                         t.minute >= 0 && t.minute <= 59 && t.second >= 0 && t.second <= 61;
      if (!valid)
        throw jinja::Failure{ErrorCode::invalid_argument, {}, "the time for strftime_now is not a calendar time", 0};
      evaluator.now = &*options.now;
    }
    const auto origin_of = [&](std::string_view name) {
      const auto& literal = options.literal_variables;
      return std::find(literal.begin(), literal.end(), name) != literal.end() ? jinja::Origin::literal
                                                                              : jinja::Origin::data;
    };
    for (const char* absent : {"tools", "documents"}) evaluator.define(absent, jinja::Value::none());
    const jinja::Value variables = jinja::read_json_object(evaluator, input_json, origin_of);
    for (const auto& [name, value] : variables.as<jinja::DictObject>().entries)
      evaluator.define(name.as<jinja::StringObject>().text, value);
    jinja::TextBuilder out(evaluator);
    evaluator.run(out);
    const std::string text = out.take_text();
    return split_segments(text, out.take_runs());
  });
}

CivilTime civil_time(long long unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm local{};
  localtime_r(&seconds, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
          local.tm_hour,        local.tm_min,     std::min(local.tm_sec, 59)};
}

namespace {

using Json = nlohmann::ordered_json;

// Adds the members of a JSON object given as text.
Status merge_object(Json& into, std::string_view json, std::string_view field) {
  if (json.empty()) return {};
  const Json parsed = Json::parse(json.begin(), json.end(), nullptr, false);
  if (!parsed.is_object()) return fail(ErrorCode::invalid_argument, fmt::format("{} is not a JSON object", field));
  for (const auto& [key, value] : parsed.items()) into[key] = value;
  return {};
}

}  // namespace

Result<std::string> to_json(const ChatInput& input) {
  Json root = Json::object();
  Json messages = Json::array();
  for (const ChatMessage& message : input.messages) {
    Json one = Json::object();
    one["role"] = message.role;
    one["content"] = message.content;
    ADZE_TRY_STATUS(merge_object(one, message.fields_json, "fields_json of a chat message"));
    messages.push_back(std::move(one));
  }
  root["messages"] = std::move(messages);
  root["tools"] = nullptr;
  if (!input.tools_json.empty()) {
    root["tools"] = Json::parse(input.tools_json.begin(), input.tools_json.end(), nullptr, false);
    if (!root["tools"].is_array()) return fail(ErrorCode::invalid_argument, "tools_json is not a JSON array");
  }
  root["documents"] = nullptr;
  root["add_generation_prompt"] = input.add_generation_prompt;
  if (input.enable_thinking) root["enable_thinking"] = *input.enable_thinking;
  root["bos_token"] = input.bos_token;
  root["eos_token"] = input.eos_token;
  ADZE_TRY_STATUS(merge_object(root, input.variables_json, "variables_json"));
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const ChatTemplate& fallback_chat_template() {
  static const ChatTemplate chatml = [] {
    auto parsed = ChatTemplate::parse(
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
    ADZE_CHECK(parsed.has_value(), "the built-in ChatML template must parse");
    return *parsed;
  }();
  return chatml;
}

}  // namespace adze::text
