// OLMo 2: norms behind attention and feed-forward instead of before them (OLMo team 2024, arXiv 2501.00656).
//
//   q, k, v = W_q h, W_k h, W_v h
//   q, k    = rope(rms(q; attn_q_norm)), rope(rms(k; attn_k_norm))        one norm over all heads; pairs (i, i + d / 2)
//   h      += rms(W_o softmax(q k^T / sqrt(d)) v; post_attention_norm)
//   h      += rms(W_down (silu(W_gate h) * W_up h); post_ffw_norm)
//   logits  = W_out rms(h; output_norm)
#include <array>

#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) { return decoder_config(reader); }

std::vector<TensorRow> tensors(const Hyperparameters&) {
  constexpr Dim none = Dim::none, hidden = Dim::hidden;
  return join({stem_tensors(),
               attention_tensors(),
               gated_tensors(),
               {{"blk.*.attn_q_norm.weight", "model.layers.*.self_attn.q_norm.weight", none, Dim::query},
                {"blk.*.attn_k_norm.weight", "model.layers.*.self_attn.k_norm.weight", none, Dim::key_value},
                {"blk.*.post_attention_norm.weight", "model.layers.*.post_attention_layernorm.weight", none, hidden},
                {"blk.*.post_ffw_norm.weight", "model.layers.*.post_feedforward_layernorm.weight", none, hidden}}});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter decoder(p, w, plan);
  decoder.embed();
  for (int i = 0; i < p.layer_count(); ++i) {
    decoder.begin_layer(i);
    decoder.copy();
    decoder.attention();
    decoder.add_normed_projection("blk.*.attn_output", "blk.*.post_attention_norm.weight");
    decoder.copy();
    decoder.feed_forward();
    decoder.add_normed_projection("blk.*.ffn_down", "blk.*.post_ffw_norm.weight");
  }
  decoder.head();
}

constexpr std::array<std::string_view, 1> kArchitectures{"olmo2"};

constexpr ImportRow kRows[] = {number_row("rms_norm_eps", "attention.layer_norm_rms_epsilon", "1e-5")};
constexpr std::array<std::string_view, 1> kModelTypes{"olmo2"};
constexpr std::array kImports{FamilyImport{.model_types = kModelTypes, .architecture = "olmo2", .rows = kRows}};

}  // namespace

extern const Family kOlmo2;
const Family kOlmo2{.name = "olmo2",
                    .architectures = kArchitectures,
                    .summary = "OLMo 2",
                    .config = config,
                    .tensors = tensors,
                    .forward = forward,
                    .imports = kImports};

}  // namespace adze::model::family
