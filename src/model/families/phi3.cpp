// Phi-3, Phi-3.5 and Phi-4 (dense): the Llama layer with stacked weights (Abdin et al. 2024, arXiv 2404.14219).
//
//   [q | k | v]  = W_qkv rms(h; attn_norm)
//   [gate | up]  = W_up rms(h; ffn_norm)
//
// Pairs are (i, i + dims / 2). The 128k models turn them by one of two sets of factors: longrope, see model/rope.hpp.
#include <array>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  ADZE_TRY(const std::int64_t window, reader.integer_or("attention.sliding_window", 0, {0, limits::kMaxContext}));
  for (LayerParameters& layer : p.layers) layer.window = static_cast<int>(window);
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  constexpr Dim hidden = Dim::hidden;
  return join({stem_tensors(),
               pre_norm_tensors(),
               {{"blk.*.attn_qkv.weight", "model.layers.*.self_attn.qkv_proj.weight", Dim::fused_qkv, hidden},
                {"blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight", hidden, Dim::query},
                {"blk.*.ffn_up.weight", "model.layers.*.mlp.gate_up_proj.weight", Dim::fused_gate_up, hidden},
                {"blk.*.ffn_down.weight", "model.layers.*.mlp.down_proj.weight", hidden, Dim::feed_forward}}});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"phi3"};

// original_max_position_embeddings is read with the rope.
constexpr ImportRow kRows[] = {integer_row("sliding_window", "attention.sliding_window"),
                               number_row("rms_norm_eps", "attention.layer_norm_rms_epsilon", "1e-5"),
                               ignored_row("original_max_position_embeddings"),
                               ignored_row("attention_bias")};  // Phi-3's code has none
constexpr std::array<std::string_view, 1> kModelTypes{"phi3"};
constexpr std::array kImports{FamilyImport{.model_types = kModelTypes, .architecture = "phi3", .rows = kRows}};

}  // namespace

extern const Family kPhi3;
const Family kPhi3{.name = "phi3",
                   .architectures = kArchitectures,
                   .summary = "Phi-3 to Phi-4, dense",
                   .config = config,
                   .tensors = tensors,
                   .forward = forward,
                   .imports = kImports};

}  // namespace adze::model::family
