// Gemma 3, text: Gemma 2's layer with norms of q and k in place of soft-caps (Gemma team 2025, arXiv 2503.19786).
//
//   h_0     = E[token] * sqrt(hidden)
//   x       = rms(h; attn_norm)
//   q, k    = rope(rms(W_q x; attn_q_norm)), rope(rms(W_k x; attn_k_norm))      per head; pairs (i, i + d / 2)
//   h      += rms(W_o softmax(q k^T / sqrt(d)) v; post_attention_norm)
//   x       = rms(h; ffn_norm)
//   h      += rms(W_down (gelu(W_gate x) * W_up x); post_ffw_norm)
//   logits  = E rms(h; output_norm)
//
// Of every six layers five slide, with a rotation of their own (base 10,000, not scaled); the sixth sees everything.
// GGUF norms hold 1 + w, safetensors norms w. The scale of scores is 1 / sqrt(query_pre_attn_scalar), which GGUF does
// not carry: it is the head size there.
#include <array>
#include <cmath>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr int kPeriod = 6;  // layers 5, 11, 17 ... are full; GGUF has no key for it

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window"};
  ADZE_TRY_STATUS(refuse_other_settings(reader, kKnown));
  ADZE_TRY(Hyperparameters p, read_sizes(reader));
  ADZE_TRY(p.norm_epsilon, reader.number("attention.layer_norm_rms_epsilon", {0.0, 1.0}));
  ADZE_TRY(p.rope, read_rope(reader, p));
  p.local_rope = {.dims = p.rope.dims};
  ADZE_TRY(p.local_rope.base, reader.number_or("rope.freq_base_swa", 10000.0f, {1.0, limits::kMaxRopeBase}));
  ADZE_TRY(const std::int64_t window, reader.integer("attention.sliding_window", {1, limits::kMaxContext}));
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    if (i % kPeriod == kPeriod - 1) continue;
    p.layers[i].window = static_cast<int>(window);
    p.layers[i].rope = LayerParameters::Rope::local;
  }
  p.embedding_scale = std::sqrt(static_cast<float>(p.hidden_size));
  p.activation = ops::Activation::gelu_tanh;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return join({stem_tensors(), attention_tensors(), head_norm_tensors(), gated_tensors(), sandwich_tensors()});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).sandwich_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"gemma3"};

}  // namespace

extern const Family kGemma3;
const Family kGemma3{.name = "gemma3",
                     .architectures = kArchitectures,
                     .summary = "Gemma 3, text",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward};

}  // namespace adze::model::family
