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

// How a gate g and a value u of a feed-forward network meet: act(g) * u, and for swiglu_oai (gpt-oss)
//   g' sigmoid(kOaiAlpha g') * (u' + 1)   with  g' = min(g, kOaiLimit),  u' = clamp(u, -kOaiLimit, kOaiLimit).
enum class Activation : std::uint8_t { silu, gelu_tanh, gelu_erf, relu_squared, swiglu_oai };
inline constexpr float kOaiAlpha = 1.702f, kOaiLimit = 7.0f;

// y = x / sqrt(mean(x^2) + eps) * w  (rms), or (x - mean) / sqrt(var + eps) * w  (layer). mean over `width` values: the
// whole row, or each head. w is `weight`, 1 + weight, or 1 when there is no weight. none: y = x.
struct NormSpec {
  enum class Kind : std::uint8_t { rms, layer, none };
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
};

// h = (h + sum of norm_i(x_i)) * scale;  out = norm(h), unless there is no out.
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
};

// out = [W_0 x + b_0 | W_1 x + b_1 | ...]: weights that read the same x, stacked in the order given.
struct Project {
  struct Part {
    WeightRef weight = nullptr;  // [out_i, in]
    WeightRef bias = nullptr;    // F32 [out_i]
  };
  std::vector<Part> parts;
  BufferId in = -1, out = -1;
};

// Splits a stacked row [q: heads*hd | k: kv_heads*hd | v: kv_heads*hd], normalises and rotates q and k, appends k and v
// to the KV cache of `kv_layer` at the row's position, and writes q. A row may lack v, which is k then, before k's norm
// and rotation; or k and v, where a layer attends to what another one stored. With `gate`,
// each head of q is followed by a gate of its size, which is written there as it is.
struct AttentionPrep {
  int kv_layer = 0;
  int heads = 0, kv_heads = 0, head_size = 0;
  bool has_q_norm = false, has_k_norm = false;
  bool norm_all_heads = false;  // one norm over all heads of q, one over all heads of k; else over each head
  bool has_v_norm = false;
  enum class Stored : std::uint8_t { key_and_value, key_as_value, nothing } stored = Stored::key_and_value;
  NormSpec q_norm{}, k_norm{}, v_norm{};
  // b: q is multiplied by 1 + b ln(1 + floor(position / interval)) after the rotation (Llama 4's attention
  // temperature).
  float position_scale = 0.0f;
  int position_interval = 1;
  int rope = 0;  // index into Plan::ropes; -1: none
  // in [heads*hd + 2*kv_heads*hd] (or 1 or 0 times kv_heads*hd; heads*hd more with gates), out [heads*hd]
  BufferId in = -1, out = -1;
  BufferId gate = -1;  // [heads*hd]; -1: there is none
  int stored_parts() const { return stored == Stored::key_and_value ? 2 : stored == Stored::key_as_value ? 1 : 0; }
};

// out = softmax(softcap(scale * q k^T) restricted to visible positions) v, over the sequence's cached k and v *as
// stored*, the row's own included. Query head h reads KV head h / (heads / kv_heads). A key at position j is visible to
// a row at position i when j <= i and (window == 0 or i - j < window). With `gate`, out is multiplied by sigmoid(gate).
struct Attend {
  int kv_layer = 0;
  int heads = 0, kv_heads = 0, head_size = 0;
  float scale = 1.0f;
  float softcap = 0.0f;        // tanh(s / softcap) * softcap before the mask; 0: none
  int window = 0;              // 0: full attention
  WeightRef sinks = nullptr;   // F32 [heads]: one more logit per head, only in the denominator
  BufferId in = -1, out = -1;  // [heads*hd]
  BufferId gate = -1;          // [heads*hd]; -1: none
};

// h += W x + b  (add), or  out = W x + b
struct ProjectAdd {
  WeightRef weight = nullptr;  // [out, in]
  WeightRef bias = nullptr;
  bool add = true;
  BufferId in = -1, out = -1;
};

// out = act(W_gate x + b_gate) * (W_up x + b_up), see Activation; without W_up, the second factor is the I values of
// `side` from side_first on.
struct GatedPair {
  WeightRef gate = nullptr, up = nullptr;  // [I, H]
  WeightRef gate_bias = nullptr, up_bias = nullptr;
  Activation activation = Activation::silu;
  BufferId in = -1, out = -1;
  BufferId side = -1;
  int side_first = 0;
};

// Chooses `used` of E experts for each row, and what each one's output is multiplied by. s = logit_scale W x + b;
//   softmax   p = softmax(s) over all experts          Shazeer et al. 2017, arXiv 1701.06538
//   sigmoid   p = sigmoid(s)                           DeepSeek-AI 2024, arXiv 2412.19437
// The experts with the largest s are chosen (with a choice_bias, those with the largest p + choice_bias); of equals the
// lower id. w_e = p_e, with `renormalise` divided by the sum over the chosen (which makes a softmax one over the chosen
// alone: gpt-oss), then times scale * expert_scale_e.
// A shared expert, which every row uses, is one more slot: id E and the weight sigmoid(shared_gate . x), or 1 without
// a gate. out = [ids: slots | weights: slots], ids ascending and exact in float32; slots = used, + 1 when `shared`.
struct Route {
  enum class Scoring : std::uint8_t { softmax, sigmoid };
  WeightRef weight = nullptr;        // [E, H]
  WeightRef bias = nullptr;          // F32 [E]
  WeightRef choice_bias = nullptr;   // F32 [E]
  WeightRef expert_scale = nullptr;  // F32 [E]
  WeightRef shared_gate = nullptr;   // F32 [H]
  Scoring scoring = Scoring::softmax;
  bool renormalise = false;
  bool shared = false;
  float logit_scale = 1.0f, scale = 1.0f;
  int used = 0;
  BufferId in = -1, out = -1;
  int slots() const { return used + (shared ? 1 : 0); }
};

// out (+)= sum over the row's slots in their order of w_e f_e(x), with the feed-forward network of each expert
//   f_e(x) = W_down,e (act(W_gate,e x + b_gate,e) * (W_up,e x + b_up,e)) + b_down,e.
// Row r of expert e of a weight [E, n, m] is its row e n + r: experts that no row is routed to are not read.
struct Experts {
  struct Weights {
    WeightRef gate = nullptr, up = nullptr;            // [E, I, H]
    WeightRef down = nullptr;                          // [E, H, I]
    WeightRef gate_bias = nullptr, up_bias = nullptr;  // F32 [E, I]
    WeightRef down_bias = nullptr;                     // F32 [E, H]
    int count = 0;                                     // E; 0: there are none
    int width = 0;                                     // I
  };
  Weights routed{};
  Weights shared{};  // the one shared expert, id `routed.count`; its weights may have another type and width
  Activation activation = Activation::silu;
  bool add = true;
  int slots = 0;  // of `routes`
  BufferId in = -1, routes = -1, out = -1;
};

// Gated DeltaNet: linear attention whose state learns by the delta rule and forgets by a gate. Yang et al. 2024, arXiv
// 2412.06464; as in transformers' qwen3_5 and qwen3_next. nk key heads of dk values, nv = r * nk value heads of dv.
struct DeltaHeads {
  int key_heads = 0, value_heads = 0;  // nk, nv
  int key_size = 0, value_size = 0;    // dk, dv
  // Value head j reads key head j % nk (the order that GGUF gives the heads of Qwen3.5), else j / r.
  bool tiled = false;
  // The gates b and a come as [b: r | a: r] for each key head in turn (Qwen3-Next), else as [b: nv | a: nv].
  bool gates_by_key_head = false;
  int key_head(int value_head) const { return tiled ? value_head % key_heads : value_head / (value_heads / key_heads); }
  int channels() const { return 2 * key_heads * key_size + value_heads * value_size; }  // of the convolution
  int projected() const { return channels() + value_heads * value_size + 2 * value_heads; }
  int prepared() const { return channels() + 2 * value_heads; }
};

// From a row [u: channels | z: nv*dv | gates: 2 nv] takes u and the gates b and a:
//   y     = silu(sum_j W_j * u_{t-K+1+j})      causal depthwise convolution over time, zeros before the first position
//   q, k  = y split; each head t / sqrt(sum t^2 + l2_epsilon); q times query_scale      v as it is
//   decay = exp(rate * softplus(a + dt_bias))   beta = sigmoid(b)
// and writes [q: nk*dk | k: nk*dk | v: nv*dv | decay: nv | beta: nv]. The last K - 1 rows of u stay in the sequence's
// state of `state_layer`.
struct DeltaPrep {
  int state_layer = 0;
  DeltaHeads heads;
  WeightRef convolution = nullptr;  // [channels, K]
  WeightRef rate = nullptr;         // F32 [nv], -exp(A_log)
  WeightRef dt_bias = nullptr;      // F32 [nv]
  float query_scale = 1.0f;         // 1 / sqrt(dk)
  float l2_epsilon = 1e-6f;         // added to the sum of squares, not to its mean
  BufferId in = -1, out = -1;       // [heads.projected()], [heads.prepared()]
};

// The gated delta rule over the rows of each sequence, in order, in the sequence's state S [nv, dk, dv]; per value head
//   S *= decay;   d = beta * (v - S^T k);   S += k d^T;   out = S^T q          decayed first, then read
// A row at position 0 starts from S = 0.
struct DeltaScan {
  int state_layer = 0;
  DeltaHeads heads;
  BufferId in = -1, out = -1;  // [heads.prepared()], [nv*dv]
};

// out = norm(in) * silu(z) per value head, z from the row that DeltaPrep reads.
struct DeltaOut {
  DeltaHeads heads;
  NormSpec norm;                          // over each head
  BufferId in = -1, gate = -1, out = -1;  // [nv*dv], [heads.projected()], [nv*dv]
};

// logits = softcap(scale * (W norm(h) + b)) for the wanted rows only.
struct Head {
  NormSpec norm;
  WeightRef weight = nullptr;  // [V, H]
  WeightRef bias = nullptr;
  float scale = 1.0f;
  float softcap = 0.0f;
  BufferId in = -1;
};

using Step = std::variant<Embed, Norm, ResidualNorm, Project, AttentionPrep, Attend, ProjectAdd, GatedPair, Route,
                          Experts, DeltaPrep, DeltaScan, DeltaOut, Head>;

std::string_view step_name(const Step& step);

// Whether a step leaves something behind for later positions of its sequence: keys and values, or a recurrent state.
bool stores(const Step& step);

// What q is multiplied by at a position: 1 but for a step that scales by position.
float position_scale(const AttentionPrep& step, std::int32_t position);

// The buffers a step reads and writes; a buffer that it adds to is in both. Hazards and lifetimes follow from these.
struct Access {
  std::vector<BufferId> reads, writes;
};
Access step_access(const Step& step);

}  // namespace adze::ops
