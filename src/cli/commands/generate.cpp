#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"MODEL", "A model file or folder, or the name of a pulled model (adze list)"},
    {"TEXT", "What to continue; - or nothing reads stdin", false, true},
};
constexpr Option kOptions[] = {
    {"--ids", "IDS", "Continue these token ids, comma separated, exactly as they are", ""},
    {"-f,--file", "FILE", "Read the text from FILE", ""},
    {"--special", "", "Read special tokens in the text as such", ""},
    {"--no-bos", "", "Do not put the model's BOS token before the text", ""},
    {"--json", "", "Print one JSON object: ids, text, finish, seed, logits_hash, timings", ""},
    {"--lora,--adapter", "FILE", "", "LoRA adapters are not supported"},
    {"--image,--mmproj", "FILE", "", "images are not supported; Adze runs text models"},
    {"--audio", "FILE", "", "audio is not supported; Adze runs text models"},
};
constexpr SettingGroup kSettings[] = {SettingGroup::sampling, SettingGroup::ending, SettingGroup::engine,
                                      SettingGroup::hub, SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze generate smollm2 \"Once upon a time\" -n 64", "A raw completion, no chat template"},
    {"adze generate smollm2 --ids 1,2,3 -n 8 --temperature 0 --json", "Token ids in, token ids out"},
};

Result<std::vector<std::int32_t>> prompt_ids(const Context& context, const Engine& engine) {
  if (const auto ids = context.arguments.value("ids")) {
    if (context.arguments.positional(1) || context.arguments.has("file")) {
      return fail(ErrorCode::invalid_argument, "a text and --ids were both given", "Give one of them.");
    }
    return parse_ids(*ids, engine.info().vocabulary);
  }
  ADZE_TRY(const std::optional<std::string> text, prompt_text(context, 1));
  if (!text) {
    return fail(ErrorCode::invalid_argument, "there is nothing to continue", "Give TEXT, --file, --ids or a pipe.");
  }
  return engine.tokenize(*text, engine.adds_bos() && !context.arguments.has("no-bos"),
                         context.arguments.has("special"));
}

Result<ExitCode> run_generate(Context& context) {
  ADZE_TRY(Engine engine, load_engine(context));
  ADZE_TRY(GenerateOptions options, generate_options(engine, context.settings()));
  ADZE_TRY(const std::vector<std::int32_t> ids, prompt_ids(context, engine));
  const bool as_json = context.arguments.has("json");
  options.hash_logits = as_json;
  if (context.settings().verbose) print_verbose(context.console, engine, options);
  watch_interrupts();
  ADZE_TRY(const Generation generation, engine.generate(ids, options, [&](std::string_view piece) {
    if (!as_json) context.console.print_answer(piece);
    return !interrupted();
  }));
  if (as_json) {
    JsonWriter json;
    json.begin_object().list("prompt_ids", ids);
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

}  // namespace

constinit const Command kGenerate{.name = "generate",
                                  .summary = "Continue a text or token ids, without a chat template",
                                  .description = {},
                                  .positionals = kPositionals,
                                  .options = kOptions,
                                  .settings = kSettings,
                                  .examples = kExamples,
                                  .run = run_generate};

}  // namespace adze::cli
