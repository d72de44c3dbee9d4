#include "format/inspect.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/json_writer.hpp"
#include "cli/models.hpp"
#include "model/model.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"MODEL", "A GGUF or safetensors file, a model folder, or the name of a pulled model"}};
constexpr Option kOptions[] = {
    {"--json", "", "Print one JSON object", ""},
    {"--tensors", "", "Also list every tensor", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};

// Whether Adze can run the model; nothing for a lone safetensors file, which does not say what it is. A folder's
// metadata, as Adze understood its config.json, joins the report.
std::optional<model::Explanation> explain_model(const std::filesystem::path& path, format::FileReport& report) {
  auto source = model::open_model_source(path);
  if (source) {
    const format::WeightStore& store = source->store;
    if (store.mlx()) report = format::inspect(*store.folder(), store.mlx());
    if (report.metadata.empty()) report.metadata = format::inspect_metadata(store.metadata());
    if (report.architecture.empty()) report.architecture = format::printable(store.architecture());
    return model::explain(std::move(*source));
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return std::nullopt;
  model::Explanation explanation;
  explanation.refusal = std::move(source.error());
  return explanation;
}

std::string as_json(const format::FileReport& report, const std::optional<model::Explanation>& explanation) {
  JsonWriter json;
  json.begin_object()
      .field("format", report.format)
      .field("architecture", report.architecture)
      .list("files", report.files)
      .field("file_bytes", report.file_bytes)
      .field("tensor_bytes", report.tensor_bytes)
      .field("parameters", report.elements);
  json.key("supported");
  if (explanation) {
    json.value(!explanation->refusal.has_value());
    json.field("family", explanation->family);
    if (explanation->refusal) {
      json.key("refusal")
          .begin_object()
          .field("code", error_code_name(explanation->refusal->code))
          .field("message", explanation->refusal->message)
          .field("hint", explanation->refusal->hint)
          .end_object();
    }
    json.list("notes", explanation->notes);
  } else {
    json.value(false);
  }
  json.key("types").begin_array();
  for (const format::TypeTotal& total : report.totals) {
    json.begin_object()
        .field("type", total.type)
        .field("tensors", total.tensors)
        .field("elements", total.elements)
        .field("bytes", total.bytes)
        .end_object();
  }
  json.end_array().key("metadata").begin_array();
  for (const format::InspectedKey& key : report.metadata) {
    json.begin_object().field("key", key.key).field("type", key.type).field("value", key.value).end_object();
  }
  json.end_array().key("tensors").begin_array();
  for (const format::InspectedTensor& tensor : report.tensors) {
    json.begin_object()
        .field("name", tensor.name)
        .field("type", tensor.type)
        .list("shape", tensor.shape)
        .field("bytes", tensor.bytes)
        .field("offset", tensor.file_offset)
        .field("file", tensor.file)
        .end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_text(const format::FileReport& report, const std::optional<model::Explanation>& explanation,
                    bool with_tensors) {
  std::string out =
      fmt::format("{}: {} in {} file{}, {} tensors, {} parameters\n", report.format, format_bytes(report.file_bytes),
                  report.files.size(), report.files.size() == 1 ? "" : "s", report.tensors.size(), report.elements);
  if (explanation) {
    if (explanation->refusal) {
      out += fmt::format("Adze cannot run it: {}\n", explanation->refusal->message);
      if (!explanation->refusal->hint.empty()) out += fmt::format("  {}\n", explanation->refusal->hint);
    } else {
      out += fmt::format("Adze can run it: family {}, {}\n", explanation->family, explanation->summary);
    }
    for (const std::string& note : explanation->notes) out += fmt::format("note: {}\n", note);
  } else {
    out += "Adze can look at this file; to run a safetensors model, name the folder with its config.json\n";
  }
  out += "\ntypes\n";
  std::size_t width = 8;
  for (const format::TypeTotal& total : report.totals) width = std::max(width, total.type.size());
  for (const format::TypeTotal& total : report.totals) {
    out += fmt::format("  {:<{}} {:>6} tensors {:>14} elements {:>10}\n", total.type, width, total.tensors,
                       total.elements, format_bytes(total.bytes));
  }
  out += "\nmetadata\n";
  for (const format::InspectedKey& key : report.metadata) {
    out += fmt::format("  {} ({}) = {}\n", key.key, key.type, key.value);
  }
  if (!with_tensors) return out;
  out += "\ntensors\n";
  for (const format::InspectedTensor& tensor : report.tensors) {
    out += fmt::format("  {:<40} {:<6} [{}] {}\n", tensor.name, tensor.type, fmt::join(tensor.shape, ", "),
                       format_bytes(tensor.bytes));
  }
  return out;
}

Result<ExitCode> run_inspect(Context& context) {
  ADZE_TRY(const std::filesystem::path path, find_model(context, *context.arguments.positional(0)));
  ADZE_TRY(format::FileReport report, format::inspect(path));
  const std::optional<model::Explanation> explanation = explain_model(path, report);
  context.console.print(context.arguments.has("json") ? as_json(report, explanation)
                                                      : as_text(report, explanation, context.arguments.has("tensors")));
  // A file of a family that Adze lacks was still inspected well; damage is an error before this line.
  return ExitCode::ok;
}

}  // namespace

constinit const Command kInspect{.name = "inspect",
                                 .summary = "Show what is in a model file and whether Adze can run it",
                                 .description = {},
                                 .positionals = kPositionals,
                                 .options = kOptions,
                                 .settings = kSettings,
                                 .examples = {},
                                 .run = run_inspect};

}  // namespace adze::cli
