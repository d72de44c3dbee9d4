// A GGUF model as a smaller one.
#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/json_writer.hpp"
#include "cli/models.hpp"
#include "cli/output_file.hpp"
#include "quantise/file.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"IN", "A GGUF file in F32, F16 or BF16 (of a split, any part), or the name of a pulled model", false},
    {"OUT", "The file to write", false},
    {"TYPE", "Q4_K_M, Q8_0 ...; adze quantize --list prints all", false},
};
constexpr Option kOptions[] = {
    {"--imatrix", "FILE", "Importance matrix, from adze imatrix or llama.cpp: errors count where the inputs are large",
     ""},
    {"--tensor-type", "PATTERN=TYPE",
     "Give TYPE to tensors whose name contains PATTERN, or matches it where it has * or ?; may be repeated, the first "
     "that matches counts",
     ""},
    {"--output-tensor-type", "TYPE", "Give TYPE to output.weight, or to the embedding that takes its place", ""},
    {"--token-embedding-type", "TYPE", "Give TYPE to the token embedding", ""},
    {"--pure", "", "TYPE for every matrix: no extra bits where a mix would spend them", ""},
    {"--allow-requantize", "", "Also change tensors that are quantised already, at a loss", ""},
    {"-t,--threads", "N", "Threads; 0 takes one per usable CPU", ""},
    {"--force", "", "Replace OUT when it exists", ""},
    {"--dry-run", "", "Only print what each tensor would become", ""},
    {"--json", "", "Print one JSON object", ""},
    {"--list", "", "Print the types", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};
constexpr Example kExamples[] = {
    {"adze quantize model-bf16.gguf model-q4_k_m.gguf Q4_K_M", "The usual choice: a quarter of the size"},
    {"adze quantize model-bf16.gguf model-q2_k.gguf Q2_K --imatrix model.imatrix.gguf", "Small, with what helps it"},
    {"adze quantize model-bf16.gguf out.gguf Q4_K_M --tensor-type ffn_down=Q6_K", "One kind of tensor in another type"},
};

std::string list_of_types() {
  std::string out;
  for (const quantise::Mix& mix : quantise::mixes()) out += fmt::format("{:<10} {}\n", mix.name, mix.what);
  return out;
}

Result<quantise::Scheme> scheme_of(const Context& context, std::string_view type) {
  const Arguments& arguments = context.arguments;
  quantise::Scheme scheme;
  ADZE_TRY(scheme.mix, quantise::find_mix(type));
  scheme.pure = arguments.has("pure");
  scheme.has_importance = arguments.has("imatrix");
  if (const auto name = arguments.value("output-tensor-type")) {
    ADZE_TRY(scheme.output, quantise::find_weight_type(*name));
  }
  if (const auto name = arguments.value("token-embedding-type")) {
    ADZE_TRY(scheme.token_embedding, quantise::find_weight_type(*name));
  }
  for (const std::string& text : arguments.values("tensor-type")) {
    const auto equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(ErrorCode::invalid_argument, fmt::format("--tensor-type: '{}' is not PATTERN=TYPE", text),
                  "For example --tensor-type ffn_down=Q6_K.");
    }
    ADZE_TRY(const tensor::DType chosen, quantise::find_weight_type(std::string_view(text).substr(equals + 1)));
    scheme.overrides.push_back({text.substr(0, equals), chosen});
  }
  return scheme;
}

std::string_view type_name(tensor::DType type) { return tensor::dtype_info(type).name; }

double bits_per_weight(const quantise::FilePlan& plan) {
  std::int64_t weights = 0;
  for (const auto& planned : plan.tensors) weights += planned.from->view.shape.elements();
  return weights == 0 ? 0.0 : 8.0 * static_cast<double>(plan.bytes_after) / static_cast<double>(weights);
}

std::string as_text(const quantise::FilePlan& plan) {
  std::string out;
  for (const auto& planned : plan.tensors) {
    const tensor::TensorView& from = planned.from->view;
    out +=
        fmt::format("{:<40} {:<6} {}\n", format::printable(from.name), type_name(from.type),
                    planned.changes ? fmt::format("-> {}{}", type_name(planned.choice.type),
                                                  planned.choice.fell_back ? " (the row's length allows no other)" : "")
                                    : "stays");
  }
  return out;
}

std::string as_json(const quantise::Mix& mix, const quantise::FilePlan& plan, bool with_tensors) {
  JsonWriter json;
  json.begin_object()
      .field("type", mix.name)
      .field("tensors", plan.tensors.size())
      .field("bytes_before", plan.bytes_before)
      .field("bytes_after", plan.bytes_after)
      .field("bits_per_weight", bits_per_weight(plan))
      .field("fell_back", plan.fell_back)
      .field("without_importance", plan.without_importance);
  if (with_tensors) {
    json.key("types").begin_array();
    for (const auto& planned : plan.tensors) {
      json.begin_object()
          .field("name", planned.from->view.name)
          .field("from", type_name(planned.from->view.type))
          .field("to", type_name(planned.choice.type))
          .end_object();
    }
    json.end_array();
  }
  return json.end_object().take();
}

void say_what_is_unusual(Console& console, const quantise::Mix& mix, const quantise::FilePlan& plan) {
  if (plan.fell_back > 0) {
    console.note(fmt::format("note: {} tensor{} rows that the blocks of {} do not divide and get{} another type",
                             plan.fell_back, plan.fell_back == 1 ? " has" : "s have", mix.name,
                             plan.fell_back == 1 ? "s" : ""));
  }
  if (plan.without_importance > 0) {
    console.note(
        fmt::format("note: the importance matrix says nothing about {} of the tensors", plan.without_importance));
  }
}

Result<format::GgufFile> open_input(const Context& context) {
  ADZE_TRY(const std::string name, required_positional(context, 0));
  ADZE_TRY(const std::filesystem::path path, find_model(context, name));
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is a folder, not a GGUF file", name),
                fmt::format("Use adze convert {} --type TYPE.", name));
  }
  return format::GgufFile::open(path);
}

Result<ExitCode> run_quantize(Context& context) {
  if (context.arguments.has("list")) {
    context.console.print(list_of_types());
    return ExitCode::ok;
  }
  ADZE_TRY(const format::GgufFile in, open_input(context));
  ADZE_TRY(const std::string out_name, required_positional(context, 1));
  const std::filesystem::path out(out_name);
  ADZE_TRY(const std::string type, required_positional(context, 2));
  quantise::FileOptions options;
  ADZE_TRY(options.scheme, scheme_of(context, type));
  const bool dry = context.arguments.has("dry-run");
  if (!dry) {
    std::vector<std::filesystem::path> inputs;
    for (const format::GgufShard& shard : in.shards()) inputs.push_back(shard.map.path());
    if (const auto file = context.arguments.value("imatrix")) inputs.emplace_back(*file);
    ADZE_TRY_STATUS(check_output(context, out, inputs));
  }
  options.allow_requantise = context.arguments.has("allow-requantize");
  ADZE_TRY(options.threads, thread_count(context));
  format::ImportanceMatrix importance;
  if (const auto file = context.arguments.value("imatrix")) {
    ADZE_TRY(importance, format::ImportanceMatrix::open(*file));
    options.importance = &importance;
    options.importance_name = *file;
  }
  ADZE_TRY(const quantise::FilePlan plan, quantise::plan_file(in, options));
  say_what_is_unusual(context.console, *options.scheme.mix, plan);
  const bool json = context.arguments.has("json");
  if (!dry) {
    watch_interrupts();
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      context.console.progress("quantizing", done, total);
      return !interrupted();
    };
    const double begin = now_seconds();
    const Status written = quantise::write_file(in, plan, options, out);
    context.console.end_progress();
    ADZE_TRY_STATUS(written);
    context.console.note(fmt::format("{} -> {} in {:.1f} s: {}, {} -> {}, {:.2f} bits per weight",
                                     *context.arguments.positional(0), out_name, now_seconds() - begin,
                                     options.scheme.mix->name, format_bytes(plan.bytes_before),
                                     format_bytes(plan.bytes_after), bits_per_weight(plan)));
  }
  if (json || dry) context.console.print(json ? as_json(*options.scheme.mix, plan, dry) : as_text(plan));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kQuantize{
    .name = "quantize",
    .summary = "Make a model smaller: fewer bits per weight",
    .description =
        "Types and mixes are llama.cpp's, and so are the bytes. The output gets its name only when it is "
        "whole. A Hugging Face folder goes through adze convert.",
    .positionals = kPositionals,
    .options = kOptions,
    .settings = kSettings,
    .examples = kExamples,
    .run = run_quantize};

}  // namespace adze::cli
