// The weights of a model by the names its family uses: a table of rows, one per tensor (or per tensor and layer),
// resolved against the weight store when the model is loaded. A tensor's shape is written in sizes of the
// hyper-parameters, so that a mismatch can say which metadata keys imply the expected shape.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "format/weight_store.hpp"
#include "model/folder_weights.hpp"
#include "model/hyperparameters.hpp"
#include "ops/steps.hpp"

namespace adze::model {

// A size of the hyper-parameters; one of a layer is that layer's. A tensor with a size of 0 does not exist in that
// layer: so one table serves layers of several kinds.
enum class Dim : std::uint8_t {
  none,
  one,  // a single value
  vocabulary,
  hidden,
  hidden_twice,
  query,             // heads * head_size
  key_value,         // kv_heads * head_size
  head,              // head_size
  stored_key_value,  // key_value where the layer stores its own keys, else 0
  stored_head,       // head_size, likewise
  stored_value,      // key_value where it stores values of their own, else 0
  heads,
  fused_qkv,         // (heads + 2 * kv_heads) * head_size
  feed_forward,      // of the layer
  fused_gate_up,     // twice that
  layer_input,       // per-layer embedding of one layer
  all_layer_inputs,  // of all layers
  experts,
  expert_width,         // of an expert's network
  fused_expert_width,   // twice that
  shared_expert_width,  // of the shared expert's network
  rope_pairs,           // rotated values of a head / 2
  gated_query,          // 2 * query: each head followed by its gate
  // of Gated DeltaNet, 0 in layers without it
  delta_channels,  // of its convolution
  delta_values,    // value_heads * value_size
  delta_value,     // value_size
  delta_heads,     // value_heads
  delta_gates,     // 2 * value_heads
  convolution,     // positions
};

enum class Need : std::uint8_t {
  required,
  optional,
  if_attention_biased,     // may be absent unless config.json says that attention has biases
  if_feed_forward_biased,  // the same of the feed-forward part
  unless_keys,             // may be absent in a layer whose values may be its keys
  unless_fused,  // must be absent where the layer has ffn_gate_up_exps, which stands in its place; else required
  unless_split,  // may be absent where the layer has ffn_gate_exps and ffn_up_exps in its place
  unless_tied,   // may be absent only where the model says (or, in GGUF, implies) that the embedding takes its place
};

// How a GGUF file's tensor differs from the safetensors weight; GGUF tensors are used as they are.
enum class Transform : std::uint8_t {
  none,
  // Rows of each head from (i, i + dims / 2) pairs to (2i, 2i + 1) pairs. No data is moved when a safetensors model is
  // loaded: its rope turns half-split pairs instead (rope_is_interleaved).
  interleave_query,
  interleave_key,
  negative_exp,  // -exp(x), which GGUF stores
  one_plus,      // a norm around zero, multiplied as 1 + weight: GGUF has the sum, computed here for safetensors
  // What safetensors stores in another order, which folder_weights.hpp rearranges when the model is loaded.
  transposed,       // [outer, columns, rows], or MXFP4 as name_blocks and name_scales in the order of GGUF
  transposed_even,  // the same with twice the rows, of which these are rows 0, 2, 4 ...; of a vector the values
  transposed_odd,   // rows 1, 3, 5 ...
  delta_qkv,        // for each key head its q, k, v and z in turn: the rows of all q, then all k, then all v
  delta_z,          // the rows of all z
};

struct TensorRow {
  std::string_view gguf;         // '*' stands for the layer; such a row is one tensor per layer
  std::string_view safetensors;  // the same, empty: that format has none; '#': a tensor for each expert
  Dim rows = Dim::none;          // [rows, columns]; a vector has columns only
  Dim columns = Dim::none;
  Need need = Need::required;
  Transform transform = Transform::none;
  Dim outer = Dim::none;  // Dim::experts: [outer, rows, columns], a matrix or a vector for each expert
  // What MLX makes of the experts' tensors: one of each kind for a layer, in the order of GGUF.
  std::string_view mlx{};
};

// A row's tensor in a layer (in a row without '*', any); a size of 0: the layer has none.
tensor::Shape tensor_shape(const TensorRow& row, const Hyperparameters& parameters, int layer);
// Whether a model without it is refused.
bool is_required(Need need, const Hyperparameters& parameters, int layer);
// "blk.*.ffn_up.weight" in layer 3 -> "blk.3.ffn_up.weight"
std::string with_layer(std::string_view pattern, int layer);

// Whether rope turns pairs (2i, 2i + 1) in a model of this format, where the family does so in GGUF files.
bool rope_is_interleaved(const std::vector<TensorRow>& rows, format::StoreFormat format);

// Vectors (norms, biases, rope factors; an expert's as well) are aligned float32 whatever the file holds: other float
// types are widened into memory of this object. Matrices are views into the store, but for those of a folder that have
// to be rearranged. Immutable once resolved; movable, the views do not move.
class Weights {
 public:
  // Takes every row's tensors from the store. Errors: those of WeightStore::require; unsupported_type (a type that is
  // no weight; a vector in a block type); unsupported_feature for a tensor of the model's layers or head that no row
  // names, since leaving it out would change what is computed.
  static Result<Weights> resolve(const std::vector<TensorRow>& rows, const Hyperparameters& parameters,
                                 format::WeightStore& store);

  // The weights of the blocks that predict further tokens: those that layers of such parameters have by `rows`, and
  // their own ("blk.*.nextn.eh_proj.weight"), to be asked for with the block in place of the layer. Their shapes are
  // checked, but they are as stored, no vector widened: nothing reads them yet, and their pages stay untouched. Empty
  // where the model has none. Errors: those of WeightStore::require; corrupt_file (a GGUF file promises blocks that it
  // lacks).
  static Result<Weights> bind_predictors(const std::vector<TensorRow>& rows, const Hyperparameters& parameters,
                                         format::WeightStore& store);
  // What has been bound, each tensor once.
  std::vector<ops::WeightRef> all() const;

  // By the GGUF name of a row; a layer's with '*'. Null when an optional tensor is not there.
  ops::WeightRef get(std::string_view gguf, int layer = -1) const;
  // The same, and null also where the family has no such row.
  ops::WeightRef find(std::string_view gguf, int layer = -1) const;
  // The same as numbers, for vectors: empty when the tensor is not there.
  std::vector<float> values(std::string_view gguf, int layer = -1) const;

 private:
  enum class Form : std::uint8_t { ready, as_stored };
  struct Stored {  // where a row's tensor is, and what it takes to be the weight
    std::string name;
    Transform transform;
  };
  Result<ops::WeightRef> take(const TensorRow& row, int layer, const Stored& stored, const Hyperparameters& p,
                              format::WeightStore& store, Form form);
  Result<ops::WeightRef> adopt(const tensor::TensorView& view, bool vector, Transform transform);

  std::unordered_map<std::string, std::vector<ops::WeightRef>> by_name_;  // one entry, or one per layer
  std::vector<std::unique_ptr<MadeWeight>> made_;
};

}  // namespace adze::model
