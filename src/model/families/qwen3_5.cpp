// Qwen 3.5, dense: three layers of Gated DeltaNet, then one of gated attention, and so on (transformers' qwen3_5). What
// mixes positions is in hybrid.hpp; its own are
//
//   value heads of the delta net in tiled order in a GGUF file: head j reads key head j % key_heads
//   h      += W_down (silu(W_gate x) * (W_up x))          x = rms(h; post_attention_norm)
//
// Text positions are the same in all three sections of its rope, so rotation is the ordinary one. A block that predicts
// further tokens (nextn_predict_layers) is no part of the main pass.
#include "model/families/hybrid.hpp"

#include <array>

#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr ops::DeltaHeads kOrder{.tiled = true};

Result<Hyperparameters> config(const ConfigReader& reader) { return hybrid_config(reader, kOrder); }

std::vector<TensorRow> tensors(const Hyperparameters&) { return join({hybrid_tensors(kOrder), gated_tensors()}); }

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter decoder(p, w, plan);
  decoder.embed();
  for (int i = 0; i < p.layer_count(); ++i) {
    decoder.begin_layer(i);
    hybrid_mixer(decoder);
    decoder.feed_forward();
    decoder.add_projection("blk.*.ffn_down");
  }
  decoder.head();
}

constexpr std::array<std::string_view, 1> kArchitectures{"qwen35"};

constexpr std::array<std::string_view, 1> kModelTypes{"qwen3_5_text"};
constexpr std::array kImports{
    FamilyImport{.model_types = kModelTypes, .architecture = "qwen35", .rows = kHybridRows, .head_size = 256}};

}  // namespace

extern const Family kQwen35;
const Family kQwen35{.name = "qwen3_5",
                     .architectures = kArchitectures,
                     .summary = "Qwen 3.5, dense: Gated DeltaNet and gated attention",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward,
                     .imports = kImports};

}  // namespace adze::model::family
