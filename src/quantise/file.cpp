#include "quantise/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "quantise/rows.hpp"

namespace adze::quantise {
namespace {

constexpr std::uint32_t kQuantisationVersion = 2;  // of ggml's block layouts

// Keys that describe the input file, not the model.
constexpr std::array kNotCopied = {
    std::string_view("general.alignment"),
    std::string_view("general.file_type"),
    std::string_view("general.quantization_version"),
    std::string_view("split.no"),
    std::string_view("split.count"),
    std::string_view("split.tensors.count"),
    std::string_view("quantize.imatrix.file"),
    std::string_view("quantize.imatrix.dataset"),
    std::string_view("quantize.imatrix.entries_count"),
    std::string_view("quantize.imatrix.chunks_count"),
};

Status check_requantising(const tensor::TensorView& view, const FileOptions& options) {
  if (!tensor::is_block_type(view.type) || options.allow_requantise) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("tensor '{}' is quantised already, as {}: what that lost stays lost",
                          format::printable(view.name), tensor::dtype_info(view.type).name),
              "Start from an F32, F16 or BF16 file, or give --allow-requantize.");
}

// Q2_K_S leaves too little to work with unless it knows which columns matter.
Status check_importance(const PlannedTensor& planned, const FileOptions& options) {
  const std::string_view name = planned.from->view.name;
  const bool excepted = name == "output.weight" || name.ends_with("token_embd.weight");
  if (options.scheme.mix->id != MixId::q2_k_s || planned.choice.type != tensor::DType::q2_k || excepted ||
      planned.has_importance) {
    return {};
  }
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("Q2_K_S needs an importance matrix, and there is none for tensor '{}'", format::printable(name)),
      "Make one with adze imatrix and give it with --imatrix, or take Q2_K.");
}

// A pattern that names nothing is a slip of the pen, and would pass unseen in a list of hundreds.
Status check_overrides(const Scheme& scheme, const std::vector<TensorEntry>& entries) {
  for (const TypeOverride& override : scheme.overrides) {
    const auto meant = [&](const TensorEntry& e) { return is_quantised(e) && matches(override.pattern, e.name); };
    if (std::ranges::any_of(entries, meant)) continue;
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' names none of the matrices that get another type", override.pattern),
                "adze inspect lists the tensors; norms, routers and biases keep their type");
  }
  return {};
}

void copy_metadata(const format::Metadata& metadata, const FileOptions& options, format::GgufWriter& writer) {
  for (const auto& entry : metadata.entries()) {
    if (std::ranges::find(kNotCopied, entry.key) == kNotCopied.end()) writer.add_value(entry.key, entry.value);
  }
  add_quantisation_keys(writer, *options.scheme.mix);
  if (options.importance == nullptr) return;
  writer.add_string("quantize.imatrix.file", options.importance_name);
  if (!options.importance->datasets.empty()) {
    writer.add_string("quantize.imatrix.dataset", options.importance->datasets.front());
  }
  writer.add_i32("quantize.imatrix.entries_count", static_cast<std::int32_t>(options.importance->entries.size()));
  writer.add_i32("quantize.imatrix.chunks_count", static_cast<std::int32_t>(options.importance->chunk_count));
}

}  // namespace

void add_quantisation_keys(format::GgufWriter& writer, const Mix& mix) {
  writer.add_u32("general.quantization_version", kQuantisationVersion);
  writer.add_u32("general.file_type", mix.file_type);
}

Result<FilePlan> plan_file(const format::GgufFile& in, const FileOptions& options) {
  ADZE_TRY(const ModelTraits traits, ModelTraits::from_metadata(in.metadata()));
  std::vector<TensorEntry> entries;
  entries.reserve(in.tensors().size());
  for (const auto& tensor : in.tensors()) entries.push_back({tensor.view.name, tensor.view.type, tensor.view.shape});
  ADZE_TRY_STATUS(check_overrides(options.scheme, entries));
  const std::vector<TypeChoice> choices = choose_types(options.scheme, traits, entries);

  FilePlan plan;
  bool is_matched = false;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const format::GgufTensor& from = in.tensors()[i];
    PlannedTensor planned{.from = &from, .choice = choices[i], .changes = choices[i].type != from.view.type};
    if (planned.changes) ADZE_TRY_STATUS(check_requantising(from.view, options));
    if (planned.changes && options.importance != nullptr && tensor::dtype_info(planned.choice.type).takes_importance) {
      ADZE_TRY(const std::vector<float> weights, options.importance->weights_for(from.view.name, from.view.shape));
      planned.has_importance = !weights.empty();
      plan.without_importance += weights.empty() ? 1 : 0;
      is_matched |= planned.has_importance;
    }
    if (planned.changes) ADZE_TRY_STATUS(check_importance(planned, options));
    plan.fell_back += planned.choice.fell_back ? 1 : 0;
    plan.bytes_before += from.view.bytes.size();
    plan.bytes_after +=
        planned.changes ? tensor::size_bytes(planned.choice.type, from.view.shape) : from.view.bytes.size();
    plan.tensors.push_back(planned);
  }
  if (plan.without_importance > 0 && !is_matched) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the importance matrix '{}' names none of the model's matrices", options.importance_name),
                "it is of another model: make one with adze imatrix");
  }
  return plan;
}

Status write_file(const format::GgufFile& in, const FilePlan& plan, const FileOptions& options,
                  const std::filesystem::path& out) {
  format::GgufWriter writer;
  copy_metadata(in.metadata(), options, writer);
  std::uint64_t done = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    const tensor::TensorView& from = planned.from->view;
    const auto produce = [&in, &plan, &options, &done, planned](const format::TensorSink& sink) -> Status {
      const tensor::TensorView& view = planned.from->view;
      std::vector<float> importance;
      if (planned.has_importance) {
        ADZE_TRY(importance, options.importance->weights_for(view.name, view.shape));
      }
      const auto reporting_sink = [&](std::span<const std::byte> bytes) -> Status {
        ADZE_TRY_STATUS(sink(bytes));
        const std::uint64_t share =
            view.bytes.size() * bytes.size() / tensor::size_bytes(planned.choice.type, view.shape);
        done += share;
        if (options.progress && !options.progress(done, plan.bytes_before)) {
          return fail(ErrorCode::cancelled, "stopped before the model was written");
        }
        return {};
      };
      ADZE_TRY_STATUS(produce_as(view, planned.choice.type, importance, options.threads, reporting_sink));
      in.shards()[planned.from->shard].map.release(planned.from->file_offset, view.bytes.size());
      return {};
    };
    writer.add_tensor(from.name, planned.choice.type, from.shape, produce);
  }
  return writer.write(out);
}

}  // namespace adze::quantise
