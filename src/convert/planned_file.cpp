#include "convert/planned_file.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "format/gguf.hpp"
#include "quantise/file.hpp"

namespace adze::convert {
namespace {

const quantise::Mix& mix_of(quantise::MixId id) {
  return *std::ranges::find(quantise::mixes(), id, &quantise::Mix::id);
}

// The float type of most weights, or experts in MXFP4 as gpt-oss has them: the mix that the file is called after.
const quantise::Mix& mix_of(std::span<const quantise::TensorEntry> entries) {
  std::int64_t f32 = 0, f16 = 0, bf16 = 0;
  for (const quantise::TensorEntry& entry : entries) {
    if (entry.type == tensor::DType::mxfp4) return mix_of(quantise::MixId::mxfp4_moe);
    if (entry.type == tensor::DType::f32) f32 += entry.shape.elements();
    if (entry.type == tensor::DType::f16) f16 += entry.shape.elements();
    if (entry.type == tensor::DType::bf16) bf16 += entry.shape.elements();
  }
  if (f32 > f16 && f32 > bf16) return mix_of(quantise::MixId::f32);
  return mix_of(f16 > bf16 ? quantise::MixId::f16 : quantise::MixId::bf16);
}

// Types by the rules of a mix. What is quantised already in a type of GGUF's stays: what that lost stays lost.
Result<std::vector<quantise::TypeChoice>> choose_types(std::span<const quantise::TensorEntry> entries,
                                                       const quantise::Mix* mix, const format::GgufWriter& writer) {
  std::vector<quantise::TypeChoice> choices;
  for (const quantise::TensorEntry& entry : entries) choices.push_back({.type = entry.type});
  if (mix == nullptr) return choices;
  const std::string bytes = writer.to_bytes();
  ADZE_TRY(const format::GgufFile file,
           format::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "the new file's metadata"));
  ADZE_TRY(const quantise::ModelTraits traits, quantise::ModelTraits::from_metadata(file.metadata()));
  const std::vector<quantise::TypeChoice> chosen = quantise::choose_types({.mix = mix}, traits, entries);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!tensor::is_block_type(entries[i].type)) choices[i] = chosen[i];
  }
  return choices;
}

}  // namespace

Result<PlannedFile> PlannedFile::plan(std::unique_ptr<format::GgufWriter> writer, std::vector<OutTensor> tensors,
                                      const WriteOptions& options, const Maker& make) {
  PlannedFile file;
  file.parameters_ = count_parameters(tensors);
  writer->add_string("general.size_label", size_label(file.parameters_));
  // Codes that GGUF cannot hold become floats before the mix decides, of the width that it asks for.
  const bool is_float = options.mix != nullptr && !tensor::is_block_type(options.mix->base);
  const tensor::DType decoded = is_float ? options.mix->base : tensor::DType::bf16;
  std::vector<quantise::TensorEntry> entries;
  for (const OutTensor& tensor : tensors)
    entries.push_back({tensor.name, unquantised_type(tensor, decoded), tensor.shape});
  ADZE_TRY(const std::vector<quantise::TypeChoice> choices, choose_types(entries, options.mix, *writer));
  file.mix_ = options.mix != nullptr ? options.mix : &mix_of(entries);
  quantise::add_quantisation_keys(*writer, *file.mix_);

  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    file.tensors_.push_back({std::move(tensors[i]), choices[i].type, choices[i].fell_back});
    total += tensor::size_bytes(choices[i].type, file.tensors_.back().tensor.shape);
  }
  const auto done = std::make_shared<std::uint64_t>(0);
  for (const PlannedTensor& planned : file.tensors_) {
    const auto produce = [&tensor = planned.tensor, type = planned.type, make, progress = options.progress, done,
                          total](const format::TensorSink& sink) {
      return make(tensor, type, [&](std::span<const std::byte> piece) -> Status {
        ADZE_TRY_STATUS(sink(piece));
        *done += piece.size();
        if (!progress || progress(*done, total)) return {};
        return fail(ErrorCode::cancelled, "stopped before the file was complete");
      });
    };
    writer->add_tensor(planned.tensor.name, planned.type, planned.tensor.shape, produce);
  }
  file.writer_ = std::move(writer);
  return file;
}

}  // namespace adze::convert
