// The vocabulary: one struct per fused Transformer step. A step names its weights, the buffers it reads and the buffers
// it writes; its meaning is the plain loop under ops/ref/. A model family writes a Plan (model/plan.hpp) of these; a
// backend covers runs of adjacent steps with dispatches.
//
// Shapes: rows are tokens, T of them in a batch; a buffer is float32 [T, width]. H hidden size, hd head size.
// Weights are row-major [out, in] views into the weight store and outlive the plan.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tensor/view.hpp"

namespace adze::ops {

using BufferId = int;                         // index into Plan::buffers
using WeightRef = const tensor::TensorView*;  // nullptr: there is none

// Rows a step must compute: all, or only those whose logits or hidden state somebody wants.
enum class RowSet : std::uint8_t { all, needed };

enum class Activation : std::uint8_t { silu, gelu_tanh, gelu_erf, relu_squared };

// y = x / sqrt(mean(x^2) + eps) * w  (rms), or (x - mean) / sqrt(var + eps) * w  (layer). mean over `width` values: the
// whole row, or each head. w is `weight`, 1 + weight, or 1 when there is no weight.
struct NormSpec {
  enum class Kind : std::uint8_t { rms, layer };
  Kind kind = Kind::rms;
  WeightRef weight = nullptr;  // F32 [width]
  bool one_plus = false;
  float epsilon = 1e-5f;
};

// Rotary embedding. Every scaling (linear, llama3, yarn, rope_freqs tensors, proportional) is already folded into the
// table by model/rope: angle(position, i) = float(position) * inverse_frequency[i], in float32.
struct RopeSpec {
  std::vector<float> inverse_frequency;  // [dims / 2]; empty: no rotation
  bool interleaved = false;              // pairs (2i, 2i+1) as in llama's GGUF files; else (i, i + dims/2)
  float magnitude = 1.0f;                // multiplies cos and sin (YaRN's attention factor)
  int dims() const { return static_cast<int>(inverse_frequency.size()) * 2; }
};

// x = table[token] * scale
struct Embed {
  WeightRef table = nullptr;  // [V, H]
  float scale = 1.0f;
  BufferId out = -1;
};

struct Norm {
  NormSpec norm;
  BufferId in = -1, out = -1;
  RowSet rows = RowSet::all;
};

// h = (h + sum of norm_i(x_i)) * scale;  out = norm(h)
struct ResidualNorm {
  struct Addend {
    BufferId in = -1;
    bool has_norm = false;
    NormSpec norm;
  };
  BufferId residual = -1;
  std::vector<Addend> addends;  // one or two
  float scale = 1.0f;
  NormSpec norm;
  BufferId out = -1;
  RowSet rows = RowSet::all;
};

// out = [W_0 x + b_0 | W_1 x + b_1 | ...]: weights that read the same x, stacked in the order given.
struct Project {
  struct Part {
    WeightRef weight = nullptr;  // [out_i, in]
    WeightRef bias = nullptr;    // F32 [out_i]
  };
  std::vector<Part> parts;
  BufferId in = -1, out = -1;
  RowSet rows = RowSet::all;
};

// Splits a stacked row [q: heads*hd | k: kv_heads*hd | v: kv_heads*hd], normalises and rotates q and k, appends k and v
// to the KV cache of `kv_layer` at the row's position, and writes q.
struct AttentionPrep {
  int kv_layer = 0;
  int heads = 0, kv_heads = 0, head_size = 0;
  bool has_q_norm = false, has_k_norm = false;
  NormSpec q_norm{}, k_norm{};  // over each head
  int rope = 0;                 // index into Plan::ropes; -1: none
  BufferId in = -1, out = -1;   // in [heads*hd + 2*kv_heads*hd], out [heads*hd]
};

// out = softmax(softcap(scale * q k^T) restricted to visible positions) v, over the sequence's cached k and v *as
// stored*, the row's own included. Query head h reads KV head h / (heads / kv_heads). A key at position j is visible to
// a row at position i when j <= i and (window == 0 or i - j < window).
struct Attend {
  int kv_layer = 0;
  int heads = 0, kv_heads = 0, head_size = 0;
  float scale = 1.0f;
  float softcap = 0.0f;        // tanh(s / softcap) * softcap before the mask; 0: none
  int window = 0;              // 0: full attention
  WeightRef sinks = nullptr;   // F32 [heads]: one more logit per head, only in the denominator
  BufferId in = -1, out = -1;  // [heads*hd]
  RowSet rows = RowSet::all;
};

// h += W x + b  (add), or  out = W x + b
struct ProjectAdd {
  WeightRef weight = nullptr;  // [out, in]
  WeightRef bias = nullptr;
  bool add = true;
  BufferId in = -1, out = -1;
  RowSet rows = RowSet::all;
};

// out = act(W_gate x + b_gate) * (W_up x + b_up)
struct GatedPair {
  WeightRef gate = nullptr, up = nullptr;  // [I, H]
  WeightRef gate_bias = nullptr, up_bias = nullptr;
  Activation activation = Activation::silu;
  BufferId in = -1, out = -1;
  RowSet rows = RowSet::all;
};

// logits = softcap(W norm(h)) for the wanted rows only.
struct Head {
  NormSpec norm;
  WeightRef weight = nullptr;  // [V, H]
  WeightRef bias = nullptr;
  float softcap = 0.0f;
  BufferId in = -1;
};

using Step = std::variant<Embed, Norm, ResidualNorm, Project, AttentionPrep, Attend, ProjectAdd, GatedPair, Head>;

std::string_view step_name(const Step& step);

// The buffers a step reads and writes; a buffer that it adds to is in both. Hazards and lifetimes follow from these.
struct Access {
  std::vector<BufferId> reads, writes;
};
Access step_access(const Step& step);

}  // namespace adze::ops
