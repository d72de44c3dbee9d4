// A model of random weights.
#include "convert/synth.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/output_file.hpp"
#include "convert/shapes.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"SHAPE", "A built-in shape (--list prints them), or a config.json", false},
    {"OUT", "The file to write", false},
};
constexpr Option kOptions[] = {
    {"--type", "TYPE", "BF16, Q8_0, Q4_K_M ... (adze quantize --list); without it, BF16", ""},
    {"--seed", "N", "Of the weights; without it, 0: the same file whenever it is written", ""},
    {"--force", "", "Replace OUT when it exists", ""},
    {"--list", "", "Print the built-in shapes", ""},
};
constexpr Example kExamples[] = {
    {"adze synth llama-3.1-8b llama-8b-q4.gguf --type Q4_K_M", "A file to measure with, without downloading a model"},
};

std::string list_of_shapes() {
  std::string out;
  for (const convert::ModelShape& shape : convert::model_shapes())
    out += fmt::format("{:<20} {:>5.2f} B parameters\n", shape.name, shape.parameters);
  return out;
}

// The configuration's text, and the model's name.
struct Configuration {
  std::string text, name;
};
Result<Configuration> find_configuration(const std::string& word) {
  if (const convert::ModelShape* shape = convert::find_shape(word); shape != nullptr)
    return Configuration{std::string(shape->config), fmt::format("{} of random weights", shape->name)};
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(word, ignored)) {
    return fail(ErrorCode::not_found, fmt::format("'{}' is neither a built-in shape nor a file", word),
                "adze synth --list prints the shapes.");
  }
  ADZE_TRY(std::string text, read_model_file(word, limits::kModelConfigMaxBytes));
  return Configuration{std::move(text), fmt::format("{} of random weights", word)};
}

Result<std::uint64_t> seed_of(const Context& context) {
  const auto text = context.arguments.value("seed");
  std::uint64_t seed = 0;
  if (!text) return seed;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seed);
  if (error == std::errc() && end == text->data() + text->size()) return seed;
  return fail(ErrorCode::invalid_argument, fmt::format("--seed: '{}' is no whole number of 64 bits", *text));
}

Result<ExitCode> run_synth(Context& context) {
  if (context.arguments.has("list")) {
    context.console.print(list_of_shapes());
    return ExitCode::ok;
  }
  ADZE_TRY(const std::string word, required_positional(context, 0));
  ADZE_TRY(const std::string out_name, required_positional(context, 1));
  const std::filesystem::path out(out_name);
  std::vector<std::filesystem::path> inputs;
  if (convert::find_shape(word) == nullptr) inputs.emplace_back(word);
  ADZE_TRY_STATUS(check_output(context, out, inputs));
  ADZE_TRY(const Configuration configuration, find_configuration(word));
  ADZE_TRY(const std::uint64_t seed, seed_of(context));
  convert::WriteOptions options;
  ADZE_TRY(options.mix, quantise::find_mix(context.arguments.value("type").value_or("BF16")));
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    context.console.progress("writing", done, total);
    return !interrupted();
  };
  ADZE_TRY(const convert::PlannedFile file,
           convert::plan_synthesis(configuration.text, configuration.name, seed, options));
  watch_interrupts();
  const Status written = file.write(out);
  context.console.end_progress();
  if (!written) return tl::unexpected<Error>(written.error());
  context.console.note(fmt::format("{}, {} parameters, {}", file.mix().name, convert::size_label(file.parameters()),
                                   format_bytes(file.bytes())));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kSynth{.name = "synth",
                               .summary = "Write a model of random weights, to measure with",
                               .description =
                                   "Writes a GGUF file with the sizes of a real model, random weights in any type, and "
                                   "a vocabulary of the right size. What it answers has no sense; what it costs is "
                                   "what the real model costs.",
                               .positionals = kPositionals,
                               .options = kOptions,
                               .settings = {},
                               .examples = kExamples,
                               .run = run_synth};

}  // namespace adze::cli
