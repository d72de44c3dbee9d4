// Qwen 3.5 with a mixture of experts, and Qwen3-Next, which computes the same: three layers of Gated DeltaNet, then one
// of gated attention, and so on (transformers' qwen3_5_moe and qwen3_next). What mixes positions is in hybrid.hpp;
// after it, with x = rms(h; post_attention_norm),
//
//   p       = softmax(W_r x) over all experts; the largest few, divided by their sum
//   h      += sum of p_e W_down,e (silu(W_gate,e x) * W_up,e x)
//           + sigmoid(w_s . x) W_down,s (silu(W_gate,s x) * W_up,s x)      the shared expert, which every token uses
//
// The files differ in the order of the delta net's heads: tiled for Qwen 3.5 (head j reads key head j % key_heads),
// grouped by key head for Qwen3-Next, its two gates in one tensor.
#include <array>

#include "model/families/hybrid.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr ops::DeltaHeads kQwen35Order{.tiled = true};
constexpr ops::DeltaHeads kNextOrder{.gates_by_key_head = true};

Result<Hyperparameters> mixture_config(const ConfigReader& reader, const ops::DeltaHeads& order) {
  constexpr std::string_view kKnown[] = {"expert_count"};
  ADZE_TRY(Hyperparameters p, hybrid_config(reader, order, kKnown));
  ADZE_TRY(p.mixture, read_mixture(reader));
  return p;
}

std::vector<TensorRow> mixture_tensors(const Hyperparameters& p, const ops::DeltaHeads& order) {
  std::vector<TensorRow> rows = join({hybrid_tensors(order), expert_tensors()});
  return p.mixture.shared_width > 0 ? join({rows, shared_expert_tensors()}) : rows;
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter decoder(p, w, plan);
  decoder.embed();
  for (int i = 0; i < p.layer_count(); ++i) {
    decoder.begin_layer(i);
    hybrid_mixer(decoder);
    decoder.add_experts();
  }
  decoder.head();
}

constexpr std::array<std::string_view, 1> kQwen35Architectures{"qwen35moe"}, kNextArchitectures{"qwen3next"};

constexpr std::array kBothRows = join_rows(
    kHybridRows, std::array{
                     integer_row("moe_intermediate_size", "expert_feed_forward_length", "512"),
                     integer_row("shared_expert_intermediate_size", "expert_shared_feed_forward_length", "512"),
                 });
constexpr std::array kQwen35Rows =
    join_rows(kBothRows, std::array{
                             integer_row("num_experts", "expert_count", "256"),
                             integer_row("num_experts_per_tok", "expert_used_count", "8"),
                         });
constexpr std::array kNextRows =
    join_rows(kBothRows, std::array{
                             integer_row("num_experts", "expert_count", "512"),
                             integer_row("num_experts_per_tok", "expert_used_count", "10"),
                             boolean_row("norm_topk_prob", "expert_weights_norm", "true"),
                             only_row("decoder_sparse_step", "1", "experts in some layers only"),
                             only_row("mlp_only_layers", "[]", "experts in some layers only"),
                         });
constexpr std::array<std::string_view, 1> kQwen35Types{"qwen3_5_moe_text"}, kNextTypes{"qwen3_next"};
constexpr std::array kQwen35Imports{
    FamilyImport{.model_types = kQwen35Types, .architecture = "qwen35moe", .rows = kQwen35Rows, .head_size = 256}};
constexpr std::array kNextImports{
    FamilyImport{.model_types = kNextTypes, .architecture = "qwen3next", .rows = kNextRows, .head_size = 256}};

}  // namespace

extern const Family kQwen35Moe;
const Family kQwen35Moe{.name = "qwen3_5-moe",
                        .architectures = kQwen35Architectures,
                        .summary = "Qwen 3.5 with a mixture of experts: Gated DeltaNet and gated attention",
                        .config = [](const ConfigReader& reader) { return mixture_config(reader, kQwen35Order); },
                        .tensors = [](const Hyperparameters& p) { return mixture_tensors(p, kQwen35Order); },
                        .forward = forward,
                        .imports = kQwen35Imports};

extern const Family kQwen3Next;
const Family kQwen3Next{.name = "qwen3-next",
                        .architectures = kNextArchitectures,
                        .summary = "Qwen3-Next: Gated DeltaNet, gated attention and a mixture of experts",
                        .config = [](const ConfigReader& reader) { return mixture_config(reader, kNextOrder); },
                        .tensors = [](const Hyperparameters& p) { return mixture_tensors(p, kNextOrder); },
                        .forward = forward,
                        .imports = kNextImports};

}  // namespace adze::model::family
