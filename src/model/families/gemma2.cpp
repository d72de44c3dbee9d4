// Gemma 2: norms before and behind each part, every second layer slides (Gemma team 2024, arXiv 2408.00118).
//
//   h_0     = E[token] * sqrt(hidden)
//   x       = rms(h; attn_norm)
//   q, k    = rope(W_q x), rope(W_k x)                       pairs (i, i + d / 2)
//   a       = softmax(cap(q k^T / sqrt(d); 50)) v            cap(s; c) = tanh(s / c) c, before the mask; layers 0, 2, 4
//   ... h      += rms(W_o a; post_attention_norm)                see the last `sliding_window` positions only x       =
//   rms(h; ffn_norm) h      += rms(W_down (gelu(W_gate x) * W_up x); post_ffw_norm) logits  = cap(E rms(h;
//   output_norm); 30)
//
// GGUF norms hold 1 + w, safetensors norms w. The scale of scores is 1 / sqrt(query_pre_attn_scalar), which GGUF does
// not carry: it is the head size there.
#include <array>
#include <cmath>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window", "attn_logit_softcapping",
                                         "final_logit_softcapping"};
  ADZE_TRY_STATUS(refuse_other_settings(reader, kKnown));
  ADZE_TRY(Hyperparameters p, read_sizes(reader));
  ADZE_TRY(p.norm_epsilon, reader.number("attention.layer_norm_rms_epsilon", {0.0, 1.0}));
  ADZE_TRY(p.rope, read_rope(reader, p));
  ADZE_TRY(p.attention_softcap, reader.number_or("attn_logit_softcapping", 50.0f, {0.0, 1e6}));
  ADZE_TRY(p.final_softcap, reader.number_or("final_logit_softcapping", 30.0f, {0.0, 1e6}));
  ADZE_TRY(const std::int64_t window, reader.integer_or("attention.sliding_window", 4096, {1, limits::kMaxContext}));
  for (std::size_t i = 0; i < p.layers.size(); i += 2) p.layers[i].window = static_cast<int>(window);
  p.embedding_scale = std::sqrt(static_cast<float>(p.hidden_size));
  p.activation = ops::Activation::gelu_tanh;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return join({stem_tensors(), attention_tensors(), gated_tensors(), sandwich_tensors()});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).sandwich_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"gemma2"};

}  // namespace

extern const Family kGemma2;
const Family kGemma2{.name = "gemma2",
                     .architectures = kArchitectures,
                     .summary = "Gemma 2",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward};

}  // namespace adze::model::family
