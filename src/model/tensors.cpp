#include "model/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>

#include "base/check.hpp"
#include "model/tensor_names.hpp"

namespace adze::model {
namespace {

std::int64_t dim_size(Dim dim, const Hyperparameters& p, int layer) {
  const LayerParameters& l = p.layers[static_cast<std::size_t>(std::max(layer, 0))];
  switch (dim) {
    case Dim::none:
    case Dim::one: return 1;
    case Dim::vocabulary: return p.vocabulary_size;
    case Dim::hidden: return p.hidden_size;
    case Dim::hidden_twice: return 2 * std::int64_t{p.hidden_size};
    case Dim::query: return std::int64_t{l.heads} * l.head_size;
    case Dim::key_value: return std::int64_t{l.kv_heads} * l.head_size;
    case Dim::head: return l.head_size;
    case Dim::stored_key_value: return l.kv_source >= 0 ? 0 : std::int64_t{l.kv_heads} * l.head_size;
    case Dim::stored_head: return l.kv_source >= 0 ? 0 : l.head_size;
    case Dim::stored_value: {
      const bool none = l.kv_source >= 0 || l.values == LayerParameters::Values::keys;
      return none ? 0 : std::int64_t{l.kv_heads} * l.head_size;
    }
    case Dim::heads: return l.heads;
    case Dim::fused_qkv: return std::int64_t{l.heads + 2 * l.kv_heads} * l.head_size;
    case Dim::feed_forward: return l.feed_forward;
    case Dim::fused_gate_up: return 2 * std::int64_t{l.feed_forward};
    case Dim::layer_input: return p.layer_input_size;
    case Dim::all_layer_inputs: return std::int64_t{p.layer_input_size} * p.layer_count();
    case Dim::experts: return p.mixture.experts;
    case Dim::expert_width: return p.mixture.width;
    case Dim::fused_expert_width: return 2 * std::int64_t{p.mixture.width};
    case Dim::shared_expert_width: return p.mixture.shared_width;
    case Dim::rope_pairs: return p.rope.dims / 2;
    case Dim::gated_query: return 2 * std::int64_t{l.heads} * l.head_size;
    case Dim::delta_channels: return l.delta.channels();
    case Dim::delta_values: return std::int64_t{l.delta.value_heads} * l.delta.value_size;
    case Dim::delta_value: return l.delta.value_size;
    case Dim::delta_heads: return l.delta.value_heads;
    case Dim::delta_gates: return 2 * std::int64_t{l.delta.value_heads};
    case Dim::convolution: return l.convolution;
  }
  ADZE_CHECK(false, "dim {}", static_cast<int>(dim));
}

// The metadata keys that a size comes from, for messages; '@' stands for the architecture.
std::string_view dim_keys(Dim dim) {
  switch (dim) {
    case Dim::none:
    case Dim::one: return "";
    case Dim::vocabulary: return "@.vocab_size or tokenizer.ggml.tokens";
    case Dim::hidden:
    case Dim::hidden_twice: return "@.embedding_length";
    case Dim::query: return "@.attention.head_count and @.attention.key_length";
    case Dim::key_value: return "@.attention.head_count_kv and @.attention.key_length";
    case Dim::stored_key_value:
    case Dim::stored_value: return "@.attention.head_count_kv, @.attention.key_length and @.attention.shared_kv_layers";
    case Dim::head:
    case Dim::stored_head: return "@.attention.key_length";
    case Dim::heads: return "@.attention.head_count";
    case Dim::fused_qkv: return "@.attention.head_count, @.attention.head_count_kv and @.attention.key_length";
    case Dim::feed_forward:
    case Dim::fused_gate_up: return "@.feed_forward_length";
    case Dim::layer_input:
    case Dim::all_layer_inputs: return "@.embedding_length_per_layer_input";
    case Dim::experts: return "@.expert_count";
    case Dim::expert_width:
    case Dim::fused_expert_width: return "@.expert_feed_forward_length";
    case Dim::shared_expert_width: return "@.expert_shared_feed_forward_length";
    case Dim::rope_pairs: return "@.rope.dimension_count";
    case Dim::gated_query: return "@.attention.head_count and @.attention.key_length";
    case Dim::delta_channels: return "@.ssm.group_count, @.ssm.state_size and @.ssm.inner_size";
    case Dim::delta_values: return "@.ssm.inner_size";
    case Dim::delta_value: return "@.ssm.inner_size and @.ssm.time_step_rank";
    case Dim::delta_heads:
    case Dim::delta_gates: return "@.ssm.time_step_rank";
    case Dim::convolution: return "@.ssm.conv_kernel";
  }
  ADZE_CHECK(false, "dim {}", static_cast<int>(dim));
}

std::string replace_all(std::string_view text, char mark, std::string_view by) {
  std::string out;
  for (const char c : text) c == mark ? void(out += by) : out.push_back(c);
  return out;
}

std::string implied_by(const TensorRow& row, const Hyperparameters& p) {
  std::vector<std::string_view> keys;
  for (const Dim dim : {row.outer, row.rows, row.columns}) {
    const std::string_view key = dim_keys(dim);
    if (!key.empty() && std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  }
  return replace_all(fmt::format("{}", fmt::join(keys, ", ")), '@', p.architecture);
}

// What a block that predicts further tokens has besides the tensors of a layer (DeepSeek-AI 2024, arXiv 2412.19437):
// with e the embedding of the token behind position i and h its last residual,
//   h' = layer(W_eh [rms(e; enorm) | rms(h; hnorm)]);   logits = W_out rms(h'; shared_head_norm)
// with the model's own embedding and W_out, unless the block has others.
std::vector<TensorRow> predictor_tensors(const std::vector<TensorRow>& layer_rows) {
  using enum Need;
  constexpr Dim none = Dim::none, hidden = Dim::hidden;
  std::vector<TensorRow> rows{
      {"blk.*.nextn.eh_proj.weight", "mtp.fc.weight", hidden, Dim::hidden_twice},
      {"blk.*.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", none, hidden},
      {"blk.*.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", none, hidden},
      {"blk.*.nextn.shared_head_norm.weight", "mtp.norm.weight", none, hidden, optional},
      {"blk.*.nextn.embed_tokens.weight", "mtp.embed_tokens.weight", Dim::vocabulary, hidden, optional},
      {"blk.*.nextn.shared_head_head.weight", "mtp.lm_head.weight", Dim::vocabulary, hidden, optional},
  };
  std::ranges::copy_if(layer_rows, std::back_inserter(rows),
                       [](const TensorRow& row) { return row.gguf.find('*') != std::string_view::npos; });
  return rows;
}

Status refuse_leftovers(const format::WeightStore& store, const TensorNames& names, const Hyperparameters& p) {
  const int layers = p.layer_count(), blocks = layers + p.predictors;
  for (const std::string_view name : store.unused()) {
    if (!names.is_main_pass(name, layers, blocks)) continue;
    return fail(ErrorCode::unsupported_feature,
                fmt::format("the model has a tensor '{}' that Adze does not compute with in this family",
                            format::printable(name)),
                "running it without would give wrong answers; use another model");
  }
  return {};
}

std::vector<float> floats_of(const tensor::TensorView& view) {
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

Status check_divisors(const tensor::TensorView& view) {
  for (const float value : floats_of(view)) {
    if (value > 0.0f) continue;
    return fail(ErrorCode::corrupt_file,
                fmt::format("tensor '{}' holds {}, allowed is more than 0", format::printable(view.name), value),
                "download or convert the model again");
  }
  return {};
}

// Whether MLX wrote a folder of a family with convolutions: it keeps them as [channels, K, 1], transformers as
// [channels, 1, K], and with that goes what it did to the norms around zero, which have their 1 already.
bool norms_have_their_one(const format::WeightStore& store) {
  return std::ranges::any_of(store.tensors(), [](const tensor::TensorView& view) {
    return view.name.ends_with(".conv1d.weight") && view.shape.rank == 3 && view.shape[1] > 1 && view.shape[2] == 1;
  });
}

}  // namespace

tensor::Shape tensor_shape(const TensorRow& row, const Hyperparameters& p, int layer) {
  tensor::Shape shape;
  for (const Dim dim : {row.outer, row.rows}) {
    if (dim != Dim::none) shape.dims[static_cast<std::size_t>(shape.rank++)] = dim_size(dim, p, layer);
  }
  shape.dims[static_cast<std::size_t>(shape.rank++)] = dim_size(row.columns, p, layer);
  return shape;
}

bool is_required(Need need, const Hyperparameters& parameters, int layer) {
  switch (need) {
    case Need::unless_keys:
      return parameters.layers[static_cast<std::size_t>(layer)].values != LayerParameters::Values::either;
    case Need::unless_fused:
    case Need::unless_split:
    case Need::required: return true;
    case Need::optional: return false;
    case Need::if_attention_biased: return parameters.attention_biases;
    case Need::if_feed_forward_biased: return parameters.feed_forward_biases;
    case Need::unless_tied: return !parameters.tied_output;
  }
  ADZE_CHECK(false, "need {}", static_cast<int>(need));
}

bool rope_is_interleaved(const std::vector<TensorRow>& rows, format::StoreFormat format) {
  const bool permuted = std::ranges::any_of(rows, [](const TensorRow& row) {
    return row.transform == Transform::interleave_query || row.transform == Transform::interleave_key;
  });
  return format == format::StoreFormat::gguf || !permuted;
}

Result<ops::WeightRef> Weights::adopt(const tensor::TensorView& view, bool vector, Transform transform) {
  const tensor::DTypeInfo& type = tensor::dtype_info(view.type);
  const bool is_float =
      view.type == tensor::DType::f32 || view.type == tensor::DType::f16 || view.type == tensor::DType::bf16;
  if (!type.is_weight() || (vector && !is_float)) {
    return fail(ErrorCode::unsupported_type,
                fmt::format("tensor '{}' is of type {}, which cannot hold a {}", format::printable(view.name),
                            type.name, vector ? "norm or a bias" : "weight"),
                "convert the model again");
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(view.bytes.data()) % alignof(float) == 0;
  const bool one_plus = transform == Transform::one_plus, negative_exp = transform == Transform::negative_exp;
  const bool as_is = view.type == tensor::DType::f32 && aligned && !one_plus && !negative_exp;
  if (!vector || as_is) return &view;
  std::vector<float> values(static_cast<std::size_t>(view.shape.elements()));
  tensor::dequantise_row(view.type, view.bytes.data(), values.data(), view.shape.elements());
  if (one_plus) {
    for (float& value : values) value += 1.0f;
  }
  if (negative_exp) {
    for (float& value : values) value = static_cast<float>(-std::exp(static_cast<double>(value)));
  }
  const auto bytes = std::as_bytes(std::span(values));
  auto widened = std::make_unique<MadeWeight>();
  widened->bytes.assign(bytes.begin(), bytes.end());
  widened->view = {view.name, tensor::DType::f32, view.shape, widened->bytes};
  made_.push_back(std::move(widened));
  return &made_.back()->view;
}

// The tensor of a row in a layer, taken from the store; null where it may be absent and is.
Result<ops::WeightRef> Weights::take(const TensorRow& row, int layer, const Stored& stored, const Hyperparameters& p,
                                     format::WeightStore& store, Form form) {
  const auto& [name, transform] = stored;
  const tensor::Shape shape = tensor_shape(row, p, layer);
  const bool from_safetensors = store.format() == format::StoreFormat::safetensors;
  const bool vector = row.rows == Dim::none;
  if (shape.elements() == 0) return nullptr;
  if (row.need == Need::unless_fused && find("blk.*.ffn_gate_up_exps.weight", layer) != nullptr) return nullptr;
  if (row.need == Need::unless_split && find("blk.*.ffn_gate_exps.weight", layer) != nullptr &&
      find("blk.*.ffn_up_exps.weight", layer) != nullptr) {
    return nullptr;
  }
  const std::string why = implied_by(row, p);
  std::unique_ptr<MadeWeight> made;
  if (from_safetensors && name.find('#') != name.npos) {
    ADZE_TRY(made, stack_experts(store, name, shape, why));
  } else if (is_rearranged(transform)) {
    ADZE_TRY(made, rearrange(store, name, shape, transform, p.layers[static_cast<std::size_t>(layer)].delta, why));
  }
  if (made != nullptr) {
    made_.push_back(std::move(made));
    return form == Form::as_stored ? &made_.back()->view : adopt(made_.back()->view, vector, transform);
  }
  ADZE_TRY(const tensor::TensorView* view,
           is_required(row.need, p, layer) ? store.require(name, shape, why) : store.optional(name, shape, why));
  if (view == nullptr || form == Form::as_stored) return view;
  ADZE_TRY(const ops::WeightRef ref, adopt(*view, vector, transform));
  if (row.columns == Dim::rope_pairs) ADZE_TRY_STATUS(check_divisors(*ref));
  return ref;
}

Result<Weights> Weights::resolve(const std::vector<TensorRow>& rows, const Hyperparameters& parameters,
                                 format::WeightStore& store) {
  Weights weights;
  const TensorNames names(store, rows);
  const bool from_safetensors = store.format() == format::StoreFormat::safetensors;
  const bool has_ones = from_safetensors && norms_have_their_one(store);
  for (const TensorRow& row : rows) {
    const bool per_layer = row.gguf.find('*') != std::string_view::npos;
    std::vector<ops::WeightRef>& refs = weights.by_name_[std::string(row.gguf)];
    for (int layer = 0; layer < (per_layer ? parameters.layer_count() : 1); ++layer) {
      const bool as_steps_read_it =
          !from_safetensors || names.is_mlx(row, layer) || (has_ones && row.transform == Transform::one_plus);
      const Stored stored{names.name(row, layer), as_steps_read_it ? Transform::none : row.transform};
      ADZE_TRY(const ops::WeightRef ref, weights.take(row, layer, stored, parameters, store, Form::ready));
      refs.push_back(ref);
    }
  }
  ADZE_TRY_STATUS(refuse_leftovers(store, names, parameters));
  return weights;
}

Result<Weights> Weights::bind_predictors(const std::vector<TensorRow>& rows, const Hyperparameters& parameters,
                                         format::WeightStore& store) {
  Weights weights;
  if (parameters.predictor.heads == 0) return weights;
  const TensorNames names(store, rows);
  const std::vector<TensorRow> own = predictor_tensors(rows);
  const int layers = parameters.layer_count();
  const bool from_safetensors = store.format() == format::StoreFormat::safetensors;
  const int count = from_safetensors ? names.predictors() : parameters.predictors;
  Hyperparameters blocks = parameters;
  blocks.layers.assign(static_cast<std::size_t>(count), parameters.predictor);
  for (int block = 0; block < count; ++block) {
    const std::string name = names.predictor_name(own.front(), block, layers);
    if (store.find(name) != nullptr) continue;
    return fail(
        ErrorCode::corrupt_file,
        fmt::format("{}.nextn_predict_layers is {}, but block {} is none that predicts further tokens: there is "
                    "no tensor '{}'",
                    parameters.architecture, parameters.predictors, layers + block, name),
        "the file is damaged or was made by a broken converter: download or convert it again");
  }
  for (const TensorRow& row : own) {
    std::vector<ops::WeightRef>& refs = weights.by_name_[std::string(row.gguf)];
    for (int block = 0; block < count; ++block) {
      const Stored stored{names.predictor_name(row, block, layers), from_safetensors ? row.transform : Transform::none};
      ADZE_TRY(const ops::WeightRef ref, weights.take(row, block, stored, blocks, store, Form::as_stored));
      refs.push_back(ref);
    }
  }
  return weights;
}

std::vector<ops::WeightRef> Weights::all() const {
  std::vector<ops::WeightRef> refs;
  for (const auto& [name, each] : by_name_) {
    std::ranges::copy_if(each, std::back_inserter(refs), [](ops::WeightRef ref) { return ref != nullptr; });
  }
  std::ranges::sort(refs);
  refs.erase(std::unique(refs.begin(), refs.end()), refs.end());
  return refs;
}

ops::WeightRef Weights::get(std::string_view gguf, int layer) const {
  const auto row = by_name_.find(std::string(gguf));
  ADZE_CHECK(row != by_name_.end(), "no row for tensor {}", gguf);
  return row->second.at(static_cast<std::size_t>(std::max(layer, 0)));
}

ops::WeightRef Weights::find(std::string_view gguf, int layer) const {
  return by_name_.contains(std::string(gguf)) ? get(gguf, layer) : nullptr;
}

std::vector<float> Weights::values(std::string_view gguf, int layer) const {
  const ops::WeightRef ref = find(gguf, layer);
  return ref == nullptr ? std::vector<float>{} : floats_of(*ref);
}

}  // namespace adze::model
