// Qwen2 and Qwen2.5: the Llama layer with biases on q, k and v (Qwen team 2024, arXiv 2407.10671).
//
//   x       = rms(h; attn_norm)
//   q, k, v = W_q x + b_q, W_k x + b_k, W_v x + b_v
//   q, k    = rope(q, position), rope(k, position)           pairs (i, i + d / 2), all of the head
//   h      += W_o softmax(q k^T / sqrt(d)) v
//   x       = rms(h; ffn_norm)
//   h      += W_down (silu(W_gate x) * W_up x)
//   logits  = W_out rms(h; output_norm)
#include <array>

#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) { return decoder_config(reader); }

std::vector<TensorRow> tensors(const Hyperparameters&) {
  std::vector<TensorRow> attention = attention_tensors();
  for (TensorRow& row : attention) {
    if (row.gguf.ends_with(".bias") && row.gguf != "blk.*.attn_output.bias") row.need = Need::required;
  }
  return join({stem_tensors(), pre_norm_tensors(), attention, gated_tensors()});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"qwen2"};

constexpr ImportRow kRows[] = {computed_row("use_sliding_window", import_full_attention), ignored_row("sliding_window"),
                               ignored_row("layer_types"),
                               ignored_row("attention_bias")};  // of Qwen2: q, k and v have biases always
constexpr std::array<std::string_view, 1> kModelTypes{"qwen2"};
constexpr std::array kImports{FamilyImport{.model_types = kModelTypes, .architecture = "qwen2", .rows = kRows}};

}  // namespace

extern const Family kQwen2;
const Family kQwen2{.name = "qwen2",
                    .architectures = kArchitectures,
                    .summary = "Qwen2 and Qwen2.5, dense",
                    .config = config,
                    .tensors = tensors,
                    .forward = forward,
                    .imports = kImports};

}  // namespace adze::model::family
