// Qwen3 MoE: the Qwen3 layer with a mixture of experts for its feed-forward part (Qwen team 2025, arXiv 2505.09388).
//
//   x       = rms(h; attn_norm)
//   q, k, v = W_q x, W_k x, W_v x
//   q, k    = rope(rms(q; attn_q_norm)), rope(rms(k; attn_k_norm))    per head; pairs (i, i + d / 2)
//   h      += W_o softmax(q k^T / sqrt(d)) v
//   x       = rms(h; ffn_norm)
//   p       = softmax(W_r x) over all experts; the largest few, divided by their sum
//   h      += sum of p_e W_down,e (silu(W_gate,e x) * W_up,e x)
//   logits  = W_out rms(h; output_norm)
#include <array>

#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"expert_count"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  ADZE_TRY_STATUS(reader.refuse_unless("expert_shared_feed_forward_length", 0, "a shared expert"));
  ADZE_TRY(p.mixture, read_mixture(reader));
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return join({stem_tensors(), pre_norm_tensors(), attention_tensors(), head_norm_tensors(), expert_tensors()});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"qwen3moe"};

constexpr ImportRow kRows[] = {
    integer_row("num_experts", "expert_count", "128", "num_local_experts"),
    integer_row("num_experts_per_tok", "expert_used_count", "8"),
    integer_row("moe_intermediate_size", "expert_feed_forward_length", "768"),
    boolean_row("norm_topk_prob", "expert_weights_norm", "false"),
    only_row("decoder_sparse_step", "1", "experts in some layers only"),
    only_row("mlp_only_layers", "[]", "experts in some layers only"),
    computed_row("use_sliding_window", import_full_attention),
    ignored_row("sliding_window"),
    ignored_row("layer_types"),
};
constexpr std::array<std::string_view, 1> kModelTypes{"qwen3_moe"};
constexpr std::array kImports{FamilyImport{.model_types = kModelTypes, .architecture = "qwen3moe", .rows = kRows}};

}  // namespace

extern const Family kQwen3Moe;
const Family kQwen3Moe{.name = "qwen3-moe",
                       .architectures = kArchitectures,
                       .summary = "Qwen3 with a mixture of experts",
                       .config = config,
                       .tensors = tensors,
                       .forward = forward,
                       .imports = kImports};

}  // namespace adze::model::family
