// A model folder as one GGUF file.
#include "convert/folder.hpp"

#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"
#include "cli/output_file.hpp"
#include "format/metadata.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"DIR", "A Hugging Face or MLX folder, or the name of a pulled one"},
    {"OUT", "The file to write; without it, FOLDER-TYPE.gguf in the working directory", false},
};
constexpr Option kOptions[] = {
    {"--type", "TYPE",
     "BF16, F16, F32, Q8_0, Q4_K_M ... (adze quantize --list); without it, floats stay as they are and weights that "
     "MLX "
     "quantised become BF16",
     ""},
    {"-t,--threads", "N", "Threads; 0 takes one per usable CPU", ""},
    {"--force", "", "Replace OUT when it exists", ""},
    {"--dry-run", "", "Only print what would be written", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};
constexpr Example kExamples[] = {
    {"adze convert Qwen3-0.6B", "Write Qwen3-0.6B-BF16.gguf"},
    {"adze convert Qwen3-0.6B small.gguf --type Q4_K_M", "Convert and quantize at once"},
};

std::string as_text(const convert::PlannedFile& file) {
  std::string out;
  for (const convert::PlannedTensor& planned : file.tensors()) {
    out += fmt::format("{:<40} {:<6} {}\n", planned.tensor.name, tensor::dtype_info(planned.type).name,
                       format::format_shape(planned.tensor.shape));
  }
  return out;
}

// "/models/Qwen3-0.6B/" -> "Qwen3-0.6B-BF16.gguf"
std::filesystem::path default_name(const std::filesystem::path& folder, const quantise::Mix& mix) {
  std::error_code ignored;
  std::filesystem::path whole = std::filesystem::absolute(folder, ignored).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return fmt::format("{}-{}.gguf", whole.filename().string(), mix.name);
}

Result<ExitCode> run_convert(Context& context) {
  ADZE_TRY(const std::filesystem::path folder, find_model(context, *context.arguments.positional(0)));
  convert::WriteOptions options;
  if (const auto type = context.arguments.value("type")) {
    ADZE_TRY(options.mix, quantise::find_mix(*type));
  }
  ADZE_TRY(options.threads, thread_count(context));
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    context.console.progress("converting", done, total);
    return !interrupted();
  };
  ADZE_TRY(const convert::FolderConversion conversion, convert::plan_conversion(folder, options));
  const convert::PlannedFile& file = conversion.file;
  for (const std::string& note : conversion.model->notes()) context.console.note(fmt::format("note: {}", note));
  for (const std::string& note : conversion.notes) context.console.note(fmt::format("note: {}", note));
  if (context.arguments.has("dry-run")) {
    context.console.print(as_text(file));
    return ExitCode::ok;
  }

  const auto given = context.arguments.positional(1);
  const std::filesystem::path out = given ? std::filesystem::path(*given) : default_name(folder, file.mix());
  ADZE_TRY(const std::vector<std::filesystem::path> inputs, files_of_model(folder));
  ADZE_TRY_STATUS(check_output(context, out, inputs));
  watch_interrupts();
  const Status written = file.write(out);
  context.console.end_progress();
  if (!written) return tl::unexpected<Error>(written.error());
  context.console.print(fmt::format("{}\n", out.string()));
  context.console.note(fmt::format("{}, {} parameters, {}", file.mix().name, convert::size_label(file.parameters()),
                                   format_bytes(file.bytes())));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kConvert{.name = "convert",
                                 .summary = "Write a model folder as one GGUF file",
                                 .description =
                                     "Writes a GGUF file that Adze and llama.cpp read: weights, vocabulary, chat "
                                     "template, sampling advice. The model is not loaded into memory.",
                                 .positionals = kPositionals,
                                 .options = kOptions,
                                 .settings = kSettings,
                                 .examples = kExamples,
                                 .run = run_convert};

}  // namespace adze::cli
