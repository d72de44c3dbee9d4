// An importance matrix of a model: how large the inputs of its matrices are on a text.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/limits.hpp"
#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"
#include "cli/output_file.hpp"
#include "cli/text_windows.hpp"
#include "format/importance_matrix.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"MODEL", "A GGUF file, or the name of a pulled model (adze list)"}};
constexpr Option kOptions[] = {
    {"-f,--file", "TEXT", "The text, UTF-8: like what the model is for, 100 kB or more", ""},
    {"-o,--output", "OUT", "The file to write (default MODEL's name with .imatrix.gguf, in the working directory)", ""},
    {"--chunks", "N", "Stop after N chunks of the text", ""},
    {"--in-file", "FILE", "Add what an earlier run wrote to FILE; may be repeated", ""},
    {"--force", "", "Replace OUT when it exists", ""},
    {"--json", "", "Print one JSON object", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::hub, SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze imatrix model-bf16.gguf -f text.txt -o model.imatrix.gguf", "For adze quantize --imatrix"},
    {"adze imatrix model-q8_0.gguf -f text.txt --chunks 100 -c 512", "A quantised model does as well"},
};

Result<std::filesystem::path> output_path(const Context& context, const std::filesystem::path& model) {
  std::filesystem::path out = context.arguments.value("output").value_or(model.stem().string() + ".imatrix.gguf");
  ADZE_TRY(std::vector<std::filesystem::path> inputs, files_of_model(model));
  for (const std::string_view option : {"file", "in-file"}) {
    for (const std::string& input : context.arguments.values(option)) inputs.emplace_back(input);
  }
  ADZE_TRY_STATUS(check_output(context, out, inputs));
  return out;
}

Result<format::ImportanceMatrix> earlier_runs(const Context& context) {
  format::ImportanceMatrix sum;
  for (const std::string& file : context.arguments.values("in-file")) {
    ADZE_TRY(const format::ImportanceMatrix matrix, format::ImportanceMatrix::open(file));
    ADZE_TRY_STATUS(sum.add(matrix));
  }
  return sum;
}

Result<format::ImportanceMatrix> measure(Context& context, Engine& engine, const std::string& file,
                                         std::uint32_t& chunks_done) {
  const std::int64_t wanted = context.settings().context > 0 ? context.settings().context : kDefaultWindow;
  std::int64_t most = 0;
  if (const auto text = context.arguments.value("chunks")) {
    ADZE_TRY(most, parse_count("--chunks", *text, 1, limits::kMaxCommandCount));
  }
  ADZE_TRY(const TextWindows text, cut_text(engine, file, std::min(wanted, engine.info().context), most));
  std::vector<std::vector<std::int32_t>> windows;
  for (std::int64_t i = 0; i < text.count; ++i) windows.push_back(text.at(i));
  ADZE_TRY(std::vector<Engine::InputSquares> squares, engine.measure_inputs(windows, [&](std::size_t done) {
    chunks_done = static_cast<std::uint32_t>(done);
    context.console.progress("imatrix", static_cast<double>(done) / static_cast<double>(windows.size()));
    return !interrupted();
  }));
  context.console.end_progress();
  format::ImportanceMatrix matrix;
  for (Engine::InputSquares& s : squares) {
    matrix.entries[s.weight] = {.sums = std::move(s.sums), .counts = std::move(s.counts)};
  }
  matrix.datasets = {file};
  matrix.chunk_count = chunks_done;
  matrix.chunk_size = static_cast<std::uint32_t>(text.size);
  return matrix;
}

// Experts that no token was routed to: their columns will all weigh the same.
std::size_t idle_experts(const format::ImportanceMatrix& matrix) {
  std::size_t idle = 0;
  for (const auto& [name, entry] : matrix.entries) {
    if (name.find("ffn_down") != std::string::npos) idle += std::ranges::count(entry.counts, 0.0f);
  }
  return idle;
}

Result<ExitCode> run_imatrix(Context& context) {
  const auto file = context.arguments.value("file");
  if (!file) {
    return fail(ErrorCode::invalid_argument, "there is no text to measure the model on", "Name one with -f TEXT.");
  }
  ADZE_TRY(const std::filesystem::path model, find_model(context, *context.arguments.positional(0)));
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is a folder, not a GGUF file", model.string()),
                "An importance matrix names a GGUF file's tensors: make one with adze convert.");
  }
  ADZE_TRY(const std::filesystem::path out, output_path(context, model));
  ADZE_TRY(format::ImportanceMatrix matrix, earlier_runs(context));
  ADZE_TRY(Engine engine, load_engine(context));
  watch_interrupts();
  const double begin = now_seconds();
  std::uint32_t chunks = 0;
  ADZE_TRY(const format::ImportanceMatrix measured, measure(context, engine, *file, chunks));
  if (chunks == 0) return fail(ErrorCode::cancelled, "stopped before a chunk was measured");
  ADZE_TRY_STATUS(matrix.add(measured));
  ADZE_TRY_STATUS(matrix.write(out));
  const double seconds = now_seconds() - begin;
  if (interrupted()) context.console.note(fmt::format("note: stopped after {} chunks; what they gave is kept", chunks));
  if (const std::size_t idle = idle_experts(measured); idle > 0) {
    context.console.note(fmt::format("note: the text never reached {} experts; take a longer one", idle));
  }
  if (context.arguments.has("json")) {
    JsonWriter json;
    json.begin_object()
        .field("file", out.string())
        .field("matrices", matrix.entries.size())
        .field("chunks", chunks)
        .field("chunk_size", static_cast<std::int64_t>(measured.chunk_size))
        .field("stopped", interrupted())
        .field("seconds", seconds);
    context.console.print(json.end_object().take());
  } else {
    context.console.note(fmt::format("{}: {} matrices on {} chunks of {} tokens, in {:.1f} s", out.string(),
                                     matrix.entries.size(), chunks, measured.chunk_size, seconds));
  }
  return interrupted() ? ExitCode::interrupted : ExitCode::ok;
}

}  // namespace

constinit const Command kImatrix{
    .name = "imatrix",
    .summary = "Measure which weights matter, for adze quantize",
    .description =
        "Runs a model over a text and sums the squares of what each of its matrices is multiplied by, column "
        "by column and expert by expert. The file is llama.cpp's: either program reads the other's. -c is the "
        "number of tokens in a chunk (512).",
    .positionals = kPositionals,
    .options = kOptions,
    .settings = kSettings,
    .examples = kExamples,
    .run = run_imatrix};

}  // namespace adze::cli
