#include <fmt/format.h>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "cli/chat.hpp"
#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"MODEL", "A model file or folder, or the name of a pulled model (adze list)"},
    {"PROMPT", "What to say; - reads it from stdin. Without one: a chat, or stdin when that is a pipe", false, true},
};
constexpr Option kOptions[] = {
    {"-f,--file", "FILE", "Read the prompt from FILE; with PROMPT, FILE follows it", ""},
    {"--chat-template", "FILE", "Use the Jinja template in FILE instead of the model's own", ""},
    {"--json", "", "Print one JSON object instead of the text: ids, text, finish, seed, timings", ""},
    {"--lora,--adapter", "FILE", "", "LoRA adapters are not supported"},
    {"--image,--mmproj", "FILE", "", "images are not supported; Adze runs text models"},
    {"--audio", "FILE", "", "audio is not supported; Adze runs text models"},
};
constexpr SettingGroup kSettings[] = {SettingGroup::chat,   SettingGroup::sampling, SettingGroup::ending,
                                      SettingGroup::engine, SettingGroup::hub,      SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze run smollm2 \"Why is the sky blue?\"", "One answer"},
    {"adze run smollm2", "A chat; /help lists its commands"},
    {"git diff | adze run smollm2 -", "The prompt from a pipe"},
};

Result<ExitCode> answer_once(Context& context, Engine& engine, Conversation& conversation, const std::string& prompt,
                             GenerateOptions options) {
  const bool as_json = context.arguments.has("json");
  options.hash_logits = as_json;
  watch_interrupts();
  ADZE_TRY(const Generation generation, conversation.say(prompt, options, [&](std::string_view piece) {
    if (!as_json) context.console.print_answer(piece);
    return !interrupted();
  }));
  if (as_json) {
    JsonWriter json;
    json.begin_object();
    write_generation(json, generation);
    context.console.print(json.end_object().take());
  } else {
    context.console.print("\n");
  }
  if (ended_by_context(generation, options)) context.console.note("(the context is full; --ctx makes it larger)");
  print_statistics(context, engine, generation);
  if (generation.finish == FinishReason::cancelled) return ExitCode::interrupted;
  finish_packs(context, engine);
  return ExitCode::ok;
}

Result<ExitCode> run_run(Context& context) {
  ADZE_TRY(const std::optional<std::string> prompt, prompt_text(context, 1));
  if (prompt && prompt->empty()) {
    return fail(ErrorCode::invalid_argument, "the prompt is empty", "Say something, or leave PROMPT out to chat.");
  }
  std::optional<std::string> chat_template;
  if (const auto file = context.arguments.value("chat-template")) {
    ADZE_TRY(chat_template, read_file(*file, limits::kTemplateMaxSourceBytes));
  }
  ADZE_TRY(Engine engine, load_engine(context, chat_template));
  ADZE_TRY(const GenerateOptions options, generate_options(engine, context.settings()));
  ADZE_TRY(Conversation conversation, engine.start_conversation());
  if (context.settings().system) conversation.set_system(*context.settings().system);
  conversation.set_thinking(thinking_of(context.settings()));
  if (context.settings().verbose) print_verbose(context.console, engine, options);
  if (prompt) return answer_once(context, engine, conversation, *prompt, options);
  ADZE_TRY(const ExitCode left, chat(context, engine, conversation));
  finish_packs(context, engine);
  return left;
}

}  // namespace

constinit const Command kRun{.name = "run",
                             .summary = "Answer a prompt, or chat",
                             .description =
                                 "Answers PROMPT with the model and prints the answer as it comes, or holds "
                                 "a chat when there is no PROMPT and stdin is a terminal.",
                             .positionals = kPositionals,
                             .options = kOptions,
                             .settings = kSettings,
                             .examples = kExamples,
                             .run = run_run};

}  // namespace adze::cli
