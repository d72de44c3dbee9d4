#include "model/tensor_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "base/limits.hpp"

namespace adze::model {
namespace {

constexpr std::string_view kDecoder = "model.";   // as families write safetensors names
constexpr std::string_view kPredictors = "mtp.";  // in place of that; beside any decoder, whatever its prefix

// Where checkpoints keep the decoder and its head: alone, inside a multimodal model (new and old spelling), and a bare
// decoder.
struct Layout {
  std::string_view decoder, head;
};
constexpr std::array<Layout, 4> kLayouts{
    {{"model.", ""}, {"model.language_model.", ""}, {"language_model.model.", "language_model."}, {"", ""}}};

// What the names of the main pass begin with, after the decoder's own prefix for safetensors.
constexpr std::string_view kGgufStarts[] = {"blk.", "token_embd", "output", "rope_", "embd_", "per_layer_"};
constexpr std::string_view kDecoderStarts[] = {"layers.", "embed_", "norm", "per_layer_"};
// Tables of 2023 that were saved beside the weights; the model computes them itself.
constexpr std::string_view kObsolete[] = {"attn_rot_embd", "rotary_emb.inv_freq"};

// Experts have a tensor each, or all of them one, without the number and ".weight": "experts.#.down_proj.weight" or
// "experts.down_proj". Empty for other tensors.
std::string name_of_all_experts(std::string_view name) {
  constexpr std::string_view kNumber = "#.", kWeight = ".weight";
  const std::size_t at = name.find(kNumber);
  if (at == name.npos || !name.ends_with(kWeight)) return {};
  name.remove_suffix(kWeight.size());
  return fmt::format("{}{}", name.substr(0, at), name.substr(at + kNumber.size()));
}

// The N of "blk.N." or "layers.N.", else -1.
int layer_of(std::string_view name, std::string_view start) {
  int layer = -1;
  if (name.starts_with(start)) std::from_chars(name.data() + start.size(), name.data() + name.size(), layer);
  return layer;
}

bool starts_with_any(std::string_view name, std::span<const std::string_view> starts) {
  return std::ranges::any_of(starts, [&](std::string_view start) { return name.starts_with(start); });
}

}  // namespace

std::string with_layer(std::string_view pattern, int layer) {
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, star), layer, pattern.substr(star + 1));
}

TensorNames::TensorNames(const format::WeightStore& store, const std::vector<TensorRow>& rows)
    : store_(store), safetensors_(store.format() == format::StoreFormat::safetensors) {
  if (!safetensors_) return;
  const auto embedding =
      std::ranges::find_if(rows, [](const TensorRow& row) { return row.gguf == "token_embd.weight"; });
  if (embedding == rows.end()) return;
  for (const Layout& layout : kLayouts) {
    decoder_ = layout.decoder;
    head_ = layout.head;
    if (store.find(name(*embedding, -1)) != nullptr) return;
  }
  decoder_ = kLayouts.front().decoder;
  head_ = kLayouts.front().head;
}

std::string TensorNames::name(const TensorRow& row, int layer) const {
  if (!safetensors_) return with_layer(row.gguf, layer);
  if (is_mlx(row, layer)) return in_place(with_layer(row.mlx, layer));
  if (row.safetensors.empty()) return {};
  return as_stored(in_place(with_layer(row.safetensors, layer)));
}

std::string TensorNames::predictor_name(const TensorRow& row, int block, int layers) const {
  if (!safetensors_) return with_layer(row.gguf, layers + block);
  if (row.safetensors.empty()) return {};
  std::string name = with_layer(row.safetensors, block);
  if (!name.starts_with(kDecoder)) return name;
  return as_stored(fmt::format("{}{}", kPredictors, std::string_view(name).substr(kDecoder.size())));
}

int TensorNames::predictors() const {
  int count = 0;
  while (count < limits::kMaxLayers &&
         store_.find(fmt::format("{}layers.{}.input_layernorm.weight", kPredictors, count)) != nullptr) {
    ++count;
  }
  return count;
}

std::string TensorNames::as_stored(const std::string& whole) const {
  const std::string stacked = name_of_all_experts(whole);
  return stacked.empty() || store_.find(stacked) == nullptr ? whole : stacked;
}

bool TensorNames::is_mlx(const TensorRow& row, int layer) const {
  return safetensors_ && !row.mlx.empty() && store_.find(in_place(with_layer(row.mlx, layer))) != nullptr;
}

std::string TensorNames::in_place(std::string_view name) const {
  const bool in_decoder = name.starts_with(kDecoder);
  return fmt::format("{}{}", in_decoder ? decoder_ : head_, name.substr(in_decoder ? kDecoder.size() : 0));
}

bool TensorNames::is_main_pass(std::string_view name, int layers, int blocks) const {
  for (const std::string_view obsolete : kObsolete) {
    if (name.find(obsolete) != name.npos) return false;
  }
  if (!safetensors_) {
    const int block = layer_of(name, "blk.");
    return starts_with_any(name, kGgufStarts) && (block < layers || block >= blocks);
  }
  if (name.starts_with(head_) && name.substr(head_.size()).starts_with("lm_head.")) return true;
  if (!name.starts_with(decoder_)) return false;
  name.remove_prefix(decoder_.size());
  return starts_with_any(name, kDecoderStarts);
}

}  // namespace adze::model
