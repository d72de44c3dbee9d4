// gpt-oss: attention with sinks, full in every second layer, and experts in MXFP4 (OpenAI 2025, arXiv 2508.10925).
//
//   x       = rms(h; attn_norm)
//   q, k, v = W_q x + b_q, W_k x + b_k, W_v x + b_v
//   q, k    = rope(q), rope(k)                               YaRN, see below; pairs (i, i + d / 2)
//   h      += W_o attend(q, k, v) + b_o                      the softmax of head j has one more logit, sink_j, that
//   stands
//                                                            for nothing; layers 0, 2, 4 ... see a window of positions
//   x       = rms(h; post_attention_norm)                    which is the norm before the feed-forward part here
//   s       = W_r x + b_r; the largest few s; p = softmax over these alone
//   h      += sum of p_e (W_down,e (g' sigmoid(1.702 g') * (u' + 1)) + b_down,e)
//             g' = min(W_gate,e x + b_gate,e, 7), u' = clamp(W_up,e x + b_up,e, -7, 7)
//   logits  = W_out rms(h; output_norm)
//
// YaRN's ramp is between real pairs here, not rounded outwards to whole ones ("truncate": false in the released
// config.json, which GGUF has no key for). llama.cpp rounds it all the same: at the released sizes from 8.09 .. 17.4 to
// 8 .. 18, so that its logits differ a little from the model's own.
#include <array>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"expert_count", "attention.sliding_window"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  p.rope.round_ramp = false;
  ADZE_TRY(const std::int64_t window, reader.integer("attention.sliding_window", {1, limits::kMaxContext}));
  for (std::size_t i = 0; i < p.layers.size(); i += 2) p.layers[i].window = static_cast<int>(window);
  ADZE_TRY_STATUS(reader.refuse_unless("expert_shared_feed_forward_length", 0, "a shared expert"));
  ADZE_TRY(p.mixture, read_mixture(reader));
  p.activation = ops::Activation::swiglu_oai;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  std::vector<TensorRow> rows = join({stem_tensors(), attention_tensors(), expert_tensors()});
  for (TensorRow& row : rows) {
    if (row.gguf.ends_with(".bias")) row.need = Need::required;
  }
  rows.push_back({"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", Dim::none, Dim::hidden});
  rows.push_back(
      {"blk.*.post_attention_norm.weight", "model.layers.*.post_attention_layernorm.weight", Dim::none, Dim::hidden});
  rows.push_back({"blk.*.attn_sinks.weight", "model.layers.*.self_attn.sinks", Dim::none, Dim::heads});
  return rows;
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder("blk.*.post_attention_norm.weight");
}

constexpr std::array<std::string_view, 1> kArchitectures{"gpt-oss"};

}  // namespace

extern const Family kGptOss;
const Family kGptOss{.name = "gpt-oss",
                     .architectures = kArchitectures,
                     .summary = "gpt-oss 20B and 120B",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward};

}  // namespace adze::model::family
