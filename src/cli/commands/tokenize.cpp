#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/json_writer.hpp"
#include "cli/models.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"MODEL", "A model file, a vocabulary-only GGUF, a tokenizer.json, or the name of a pulled model"},
    {"TEXT", "The text; - or nothing reads stdin", false, true},
};
constexpr Option kOptions[] = {
    {"--special", "", "Read special tokens in the text as such; without it they are plain text", ""},
    {"--bos", "", "Put the BOS token first", ""},
    {"-f,--file", "FILE", "Read the text from FILE", ""},
    {"--json", "", "Print {\"ids\":[...]}", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};
constexpr Example kExamples[] = {{"adze tokenize smollm2 \"Hello\" --json", "Ids of a text, without BOS"}};

Result<ExitCode> run_tokenize(Context& context) {
  ADZE_TRY(const std::filesystem::path path, find_model(context, *context.arguments.positional(0)));
  ADZE_TRY(const std::shared_ptr<const text::Tokenizer> tokenizer, load_tokenizer(path));
  ADZE_TRY(const std::optional<std::string> text, prompt_text(context, 1));
  if (!text) return fail(ErrorCode::invalid_argument, "there is no text", "Give TEXT, --file or a pipe.");
  ADZE_TRY(const std::vector<text::TokenId> ids,
           tokenizer->encode(*text, {.parse_special = context.arguments.has("special"),
                                     .add_bos = context.arguments.has("bos"),
                                     .add_eos = false}));
  if (context.arguments.has("json")) {
    JsonWriter json;
    context.console.print(json.begin_object().list("ids", ids).end_object().take());
  } else {
    context.console.print(fmt::format("{}\n", fmt::join(ids, ",")));
  }
  return ExitCode::ok;
}

}  // namespace

constinit const Command kTokenize{.name = "tokenize",
                                  .summary = "Turn text into token ids",
                                  .description = {},
                                  .positionals = kPositionals,
                                  .options = kOptions,
                                  .settings = kSettings,
                                  .examples = kExamples,
                                  .run = run_tokenize};

}  // namespace adze::cli
