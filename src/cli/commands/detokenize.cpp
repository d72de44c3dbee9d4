#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/models.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"MODEL", "A model file, a vocabulary-only GGUF, a tokenizer.json, or the name of a pulled model"},
    {"IDS", "Token ids, comma separated; - or nothing reads stdin", false, true},
};
constexpr Option kOptions[] = {
    {"--special", "", "Also print special tokens", ""},
    {"--json", "", "Print {\"text\":...}", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};
constexpr Example kExamples[] = {{"adze detokenize smollm2 19556,905", "The text of two tokens"}};

Result<ExitCode> run_detokenize(Context& context) {
  ADZE_TRY(const std::filesystem::path path, find_model(context, *context.arguments.positional(0)));
  ADZE_TRY(const std::shared_ptr<const text::Tokenizer> tokenizer, load_tokenizer(path));
  ADZE_TRY(const std::optional<std::string> words, prompt_text(context, 1));
  if (!words) return fail(ErrorCode::invalid_argument, "there are no ids", "Give IDS or a pipe.");
  ADZE_TRY(const std::vector<std::int32_t> ids, parse_ids(*words, tokenizer->size()));
  const std::string text = tokenizer->decode(ids, {.show_special = context.arguments.has("special")});
  if (context.arguments.has("json")) {
    JsonWriter json;
    context.console.print(json.begin_object().field("text", text).end_object().take());
  } else {
    // Into a pipe exactly the text; on a terminal the prompt should not stick to it.
    context.console.print(text);
    if (context.console.stdout_is_terminal()) context.console.print("\n");
  }
  return ExitCode::ok;
}

}  // namespace

constinit const Command kDetokenize{.name = "detokenize",
                                    .summary = "Turn token ids into text",
                                    .description = {},
                                    .positionals = kPositionals,
                                    .options = kOptions,
                                    .settings = kSettings,
                                    .examples = kExamples,
                                    .run = run_detokenize};

}  // namespace adze::cli
