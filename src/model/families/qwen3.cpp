// Qwen3, dense: the Llama layer with a norm over each head of q and k (Qwen team 2025, arXiv 2505.09388).
//
//   x       = rms(h; attn_norm)
//   q, k, v = W_q x, W_k x, W_v x                            head size d of its own, heads * d need not be the hidden
//   size q, k    = rope(rms(q; attn_q_norm)), rope(rms(k; attn_k_norm))        per head; pairs (i, i + d / 2) h      +=
//   W_o softmax(q k^T / sqrt(d)) v x       = rms(h; ffn_norm) h      += W_down (silu(W_gate x) * W_up x) logits  =
//   W_out rms(h; output_norm)
#include <array>

#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) { return decoder_config(reader); }

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return join({stem_tensors(), pre_norm_tensors(), attention_tensors(), head_norm_tensors(), gated_tensors()});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"qwen3"};

constexpr ImportRow kRows[] = {computed_row("use_sliding_window", import_full_attention), ignored_row("sliding_window"),
                               ignored_row("layer_types")};
constexpr std::array<std::string_view, 1> kModelTypes{"qwen3"};
constexpr std::array kImports{
    FamilyImport{.model_types = kModelTypes, .architecture = "qwen3", .rows = kRows, .head_size = 128}};

}  // namespace

extern const Family kQwen3;
const Family kQwen3{.name = "qwen3",
                    .architectures = kArchitectures,
                    .summary = "Qwen3, dense",
                    .config = config,
                    .tensors = tensors,
                    .forward = forward,
                    .imports = kImports};

}  // namespace adze::model::family
