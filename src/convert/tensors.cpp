#include "convert/tensors.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <string_view>

#include "base/check.hpp"
#include "quantise/rows.hpp"

namespace adze::convert {
namespace {

using model::Dim;
using model::Hyperparameters;
using model::TensorRow;

using Order = std::vector<std::int64_t>;

// Where each head's pairs (i, i + dims / 2) come to stand when they become (2i, 2i + 1).
Order interleaved(std::int64_t heads, std::int64_t head_size, std::int64_t dims) {
  Order order(static_cast<std::size_t>(heads * head_size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t first = head * head_size;
    for (std::int64_t i = 0; i < dims; ++i)
      order[static_cast<std::size_t>(first + i)] = first + i / 2 + i % 2 * (dims / 2);
  }
  return order;
}

// Value heads that stand side by side where they share a key head become tiled: head j reads key head j % key_heads.
Order tiled(std::int64_t before, const ops::DeltaHeads& heads, std::int64_t head_size) {
  const std::int64_t shared = heads.value_heads / heads.key_heads;
  Order order(static_cast<std::size_t>(before + heads.value_heads * head_size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::int64_t head = 0; head < heads.value_heads; ++head) {
    const std::int64_t from = head % heads.key_heads * shared + head / heads.key_heads;
    for (std::int64_t i = 0; i < head_size; ++i)
      order[static_cast<std::size_t>(before + head * head_size + i)] = before + from * head_size + i;
  }
  return order;
}

Order order_of(Dim dim, const model::LayerParameters& meant, const model::LayerParameters& read) {
  const ops::DeltaHeads& heads = meant.delta;
  if (heads.tiled == read.delta.tiled || heads.key_heads == heads.value_heads) return {};
  if (dim == Dim::delta_heads) return tiled(0, heads, 1);
  if (dim == Dim::delta_values) return tiled(0, heads, heads.value_size);
  if (dim == Dim::delta_channels)
    return tiled(2 * std::int64_t{heads.key_heads} * heads.key_size, heads, heads.value_size);
  return {};
}

void set_order(OutTensor& tensor, const TensorRow& row, const model::LayerParameters& meant,
               const model::LayerParameters& read, int rope_dims) {
  tensor.rows = row.rows == Dim::none ? Order{} : order_of(row.rows, meant, read);
  tensor.columns = order_of(row.columns, meant, read);
  const bool query = row.transform == model::Transform::interleave_query;
  if (!query && row.transform != model::Transform::interleave_key) return;
  Order order = interleaved(query ? meant.heads : meant.kv_heads, meant.head_size, rope_dims);
  (tensor.vector ? tensor.columns : tensor.rows) = std::move(order);
}

// What the frequencies of rope are divided by where a GGUF file can only say it pair by pair; empty: nothing. In
// float32 step by step, as llama.cpp's converter does it, so that the bits are the same.
std::vector<float> rope_frequency_factors(const model::RopeSettings& rope) {
  const bool llama3 = rope.scaling == model::RopeScaling::llama3;
  if (!llama3 && rope.turned_pairs < 0) return {};
  constexpr float kStill = 1e30f;                                 // a pair that does not turn
  const auto inverse = [](float value) { return 1.0f / value; };  // torch divides a number by a tensor so
  const auto factor = static_cast<float>(rope.factor), context = static_cast<float>(rope.original_context);
  const auto low = static_cast<float>(rope.low_frequency_factor), high = static_cast<float>(rope.high_frequency_factor);
  std::vector<float> factors;
  for (int pair = 0; pair < rope.dims / 2; ++pair) {
    if (!llama3) {
      factors.push_back(pair < rope.turned_pairs ? 1.0f : kStill);
      continue;
    }
    const float exponent = static_cast<float>(2 * pair) / static_cast<float>(rope.dims);
    const float frequency = inverse(std::pow(static_cast<float>(rope.base), exponent));
    const float wavelength = inverse(frequency) * static_cast<float>(2.0 * std::numbers::pi);
    if (wavelength < context / high) {
      factors.push_back(1.0f);
    } else if (wavelength > context / low) {
      factors.push_back(factor);
    } else {
      const float kept = (inverse(wavelength) * context - low) / (high - low);
      factors.push_back(inverse((1.0f - kept) / factor + kept));
    }
  }
  return factors;
}

// The rows of the table, layer by layer between those that stand before and behind the layers.
template <class Visit>
void for_each_tensor(const std::vector<TensorRow>& rows, int layers, const Visit& visit) {
  const auto per_layer = [](const TensorRow& row) { return row.gguf.find('*') != std::string_view::npos; };
  const auto behind = [](const TensorRow& row) { return row.gguf.starts_with("output"); };
  for (const TensorRow& row : rows) {
    if (!per_layer(row) && !behind(row)) visit(row, -1);
  }
  for (int layer = 0; layer < layers; ++layer) {
    for (const TensorRow& row : rows) {
      if (per_layer(row)) visit(row, layer);
    }
  }
  for (const TensorRow& row : rows) {
    if (behind(row)) visit(row, -1);
  }
}

constexpr std::string_view kRopeFactors = "rope_freqs.weight", kShortFactors = "rope_factors_short.weight",
                           kLongFactors = "rope_factors_long.weight";

bool is_rope_factors(const TensorRow& row) {
  return row.gguf == kRopeFactors || row.gguf == kShortFactors || row.gguf == kLongFactors;
}

OutTensor tensor_of(const TensorRow& row, int layer, const Hyperparameters& p) {
  return {.name = model::with_layer(row.gguf, layer),
          .shape = model::tensor_shape(row, p, layer),
          .vector = row.rows == Dim::none};
}

// Gives such a row its factors; false where the model has none.
bool set_rope_factors(OutTensor& tensor, const TensorRow& row, const Hyperparameters& meant) {
  tensor.values = row.gguf == kShortFactors  ? meant.rope.short_factors
                  : row.gguf == kLongFactors ? meant.rope.long_factors
                                             : rope_frequency_factors(meant.rope);
  return !tensor.values.empty();
}

constexpr std::string_view kFused = "blk.*.ffn_gate_up_exps.weight";

// Half of the rows of each expert: gate stands before up.
void take_half(OutTensor& tensor, const tensor::TensorView& fused, bool second) {
  const std::int64_t half = fused.rows() / fused.shape[0] / 2;
  auto part = tensor::rows_of_each(fused, second ? half : 0, half);
  tensor.from = part.get();
  tensor.part = std::move(part);
}

// A row's weight; of experts whose gate and up are one weight, its part.
void set_source(OutTensor& tensor, const TensorRow& row, int layer, const model::Weights& weights) {
  tensor.from = weights.get(row.gguf, layer);
  if (tensor.from != nullptr || row.need != model::Need::unless_fused) return;
  const tensor::TensorView* fused = weights.find(kFused, layer);
  if (fused != nullptr) take_half(tensor, *fused, row.gguf.find("_up_") != std::string_view::npos);
}

// GGUF files have the two apart wherever the family knows both ways.
bool stands_for_two(const TensorRow& row) { return row.gguf == kFused && row.need == model::Need::optional; }

// Bytes of rows [first, first + count) of the file, out of rows that stand elsewhere.
Status gather(const OutTensor& tensor, std::int64_t first, std::int64_t count, tensor::DType type, int threads,
              std::vector<std::byte>& out) {
  const tensor::TensorView& from = *tensor.from;
  const std::int64_t columns = from.columns();
  const auto width = static_cast<std::size_t>(columns);
  std::vector<float> values(static_cast<std::size_t>(count) * width), row(width);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t source = tensor.rows.empty() ? first + i : tensor.rows[static_cast<std::size_t>(first + i)];
    float* const to = values.data() + static_cast<std::size_t>(i) * width;
    tensor::dequantise_row(from, source, tensor.columns.empty() ? to : row.data());
    for (std::size_t c = 0; c < tensor.columns.size(); ++c) to[c] = row[static_cast<std::size_t>(tensor.columns[c])];
  }
  const tensor::TensorView gathered{
      from.name, tensor::DType::f32, {.dims = {count, columns, 1, 1}, .rank = 2}, std::as_bytes(std::span(values))};
  out.resize(static_cast<std::size_t>(count) * tensor::row_bytes(type, columns));
  return quantise::quantise_rows(gathered, 0, count, type, {}, threads, out.data());
}

}  // namespace

std::vector<OutTensor> list_tensors(const model::Family& family, const model::Weights& weights,
                                    const Hyperparameters& meant, const Hyperparameters& read) {
  std::vector<OutTensor> tensors;
  for_each_tensor(family.tensors(meant), meant.layer_count(), [&](const TensorRow& row, int layer) {
    if (stands_for_two(row)) return;
    OutTensor tensor = tensor_of(row, layer, meant);
    if (is_rope_factors(row)) {
      if (set_rope_factors(tensor, row, meant)) tensors.push_back(std::move(tensor));
      return;
    }
    set_source(tensor, row, layer, weights);
    if (tensor.from == nullptr) return;
    if (layer >= 0) {
      const auto at = static_cast<std::size_t>(layer);
      set_order(tensor, row, meant.layers[at], read.layers[at], meant.rope.dims);
    }
    tensors.push_back(std::move(tensor));
  });
  return tensors;
}

std::vector<OutTensor> list_tensors(const model::Family& family, const Hyperparameters& meant) {
  std::vector<OutTensor> tensors;
  for_each_tensor(family.tensors(meant), meant.layer_count(), [&](const TensorRow& row, int layer) {
    OutTensor tensor = tensor_of(row, layer, meant);
    if (tensor.shape.elements() == 0) return;
    const bool there =
        is_rope_factors(row) ? set_rope_factors(tensor, row, meant) : model::is_required(row.need, meant, layer);
    if (there) tensors.push_back(std::move(tensor));
  });
  return tensors;
}

ParameterCount count_parameters(const std::vector<OutTensor>& tensors) {
  ParameterCount count;
  for (const OutTensor& tensor : tensors) {
    const bool expert = tensor.name.find("_exps.") != std::string::npos && tensor.shape.rank > 2;
    (expert ? count.experts : count.shared) += tensor.shape.elements();
    if (expert) count.expert_count = static_cast<int>(tensor.shape[0]);
  }
  return count;
}

tensor::DType unquantised_type(const OutTensor& tensor, tensor::DType wanted) {
  const auto is = [&](std::string_view name) { return tensor.name.ends_with(name); };
  const bool is_router = is(".ffn_gate_inp.weight") || is(".ffn_gate_inp_shexp.weight");
  if (tensor.vector || is_router || is(".ssm_conv1d.weight")) return tensor::DType::f32;
  if (tensor.from == nullptr) return wanted;
  const tensor::DTypeInfo& type = tensor::dtype_info(tensor.from->type);
  const bool readable = tensor::dtype_from_ggml(type.ggml_id) == type.type;
  const bool moves_values = tensor::is_block_type(type.type) && !tensor.columns.empty();
  return readable && !moves_values ? type.type : wanted;
}

Status produce(const OutTensor& tensor, tensor::DType type, int threads, const format::TensorSink& sink) {
  if (tensor.from == nullptr) {
    ADZE_CHECK(type == tensor::DType::f32, "tensor '{}' is made as float32", tensor.name);
    return sink(std::as_bytes(std::span(tensor.values)));
  }
  if (tensor.rows.empty() && tensor.columns.empty()) return quantise::produce_as(*tensor.from, type, {}, threads, sink);
  const std::int64_t rows = tensor.from->rows();
  const auto row_bytes = static_cast<std::int64_t>(tensor.from->columns() * 4);
  const std::int64_t at_once = std::max<std::int64_t>(static_cast<std::int64_t>(quantise::kPieceBytes) / row_bytes, 1);
  std::vector<std::byte> piece;
  for (std::int64_t row = 0; row < rows; row += at_once) {
    ADZE_TRY_STATUS(gather(tensor, row, std::min(at_once, rows - row), type, threads, piece));
    ADZE_TRY_STATUS(sink(piece));
  }
  return {};
}

}  // namespace adze::convert
