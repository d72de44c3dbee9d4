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
  ADZE_TRY(p.rope.round_ramp, reader.flag_or(folder_key::kRoundRamp, false));
  ADZE_TRY(const std::int64_t window, reader.integer("attention.sliding_window", {1, limits::kMaxContext}));
  for (std::size_t i = 0; i < p.layers.size(); i += 2) p.layers[i].window = static_cast<int>(window);
  ADZE_TRY_STATUS(reader.refuse_unless("expert_shared_feed_forward_length", 0, "a shared expert"));
  ADZE_TRY(p.mixture, read_mixture(reader));
  p.activation = ops::Activation::swiglu_oai;
  return p;
}

// A folder has gate and up in one weight, row by row in turn, and every weight of the experts transposed; not so MLX.
std::vector<TensorRow> tensors(const Hyperparameters&) {
  constexpr Transform as_is = Transform::none, transposed = Transform::transposed;
  constexpr Transform even = Transform::transposed_even, odd = Transform::transposed_odd;
  constexpr Dim none = Dim::none, hidden = Dim::hidden, experts = Dim::experts, width = Dim::expert_width;
  constexpr Need required = Need::required;
  constexpr std::string_view kGateUp = "model.layers.*.mlp.experts.gate_up_proj";
  constexpr std::string_view kGateUpBias = "model.layers.*.mlp.experts.gate_up_proj_bias";
  std::vector<TensorRow> rows =
      join({stem_tensors(),
            attention_tensors(),
            {
                {"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", none, hidden},
                {"blk.*.post_attention_norm.weight", "model.layers.*.post_attention_layernorm.weight", none, hidden},
                {"blk.*.attn_sinks.weight", "model.layers.*.self_attn.sinks", none, Dim::heads},
                {"blk.*.ffn_gate_inp.weight", "model.layers.*.mlp.router.weight", experts, hidden},
                {"blk.*.ffn_gate_inp.bias", "model.layers.*.mlp.router.bias", none, experts},
                {"blk.*.ffn_gate_exps.weight", kGateUp, width, hidden, required, even, experts,
                 "model.layers.*.mlp.experts.gate_proj.weight"},
                {"blk.*.ffn_gate_exps.bias", kGateUpBias, none, width, required, even, experts,
                 "model.layers.*.mlp.experts.gate_proj.bias"},
                {"blk.*.ffn_up_exps.weight", kGateUp, width, hidden, required, odd, experts,
                 "model.layers.*.mlp.experts.up_proj.weight"},
                {"blk.*.ffn_up_exps.bias", kGateUpBias, none, width, required, odd, experts,
                 "model.layers.*.mlp.experts.up_proj.bias"},
                {"blk.*.ffn_down_exps.weight", "model.layers.*.mlp.experts.down_proj", hidden, width, required,
                 transposed, experts, "model.layers.*.mlp.experts.down_proj.weight"},
                {"blk.*.ffn_down_exps.bias", "model.layers.*.mlp.experts.down_proj_bias", none, hidden, required, as_is,
                 experts, "model.layers.*.mlp.experts.down_proj.bias"},
            }});
  for (TensorRow& row : rows) {
    if (row.gguf.ends_with(".bias")) row.need = required;
  }
  return rows;
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder("blk.*.post_attention_norm.weight");
}

constexpr std::array<std::string_view, 1> kArchitectures{"gpt-oss"};

// transformers has a scaling of its own for a configuration without one; released models all give theirs.
Status import_given_rope(ConfigImport& import) {
  if (import.config().has("rope_parameters") || import.config().has("rope_scaling")) return import_rope(import);
  return refuse_setting(import, "rope_parameters", "a rotation that it does not describe");
}

constexpr ImportRow kRows[] = {
    integer_row("num_hidden_layers", "block_count", "36"),
    integer_row("hidden_size", "embedding_length", "2880"),
    integer_row("num_attention_heads", "attention.head_count", "64"),
    integer_row("num_key_value_heads", "attention.head_count_kv", "8"),
    integer_row("max_position_embeddings", "context_length", "131072"),
    integer_row("vocab_size", "vocab_size", "201088"),
    integer_row("intermediate_size", "expert_feed_forward_length", "2880"),
    integer_row("num_local_experts", "expert_count", "128", "num_experts"),
    integer_row("num_experts_per_tok", "expert_used_count", "4", "experts_per_token"),
    integer_row("sliding_window", "attention.sliding_window", "128"),
    number_row("rms_norm_eps", "attention.layer_norm_rms_epsilon", "1e-5"),
    boolean_row("attention_bias", folder_key::kAttentionBias, "true"),
    computed_row("layer_types", [](ConfigImport& import) { return check_layer_types(import, 2); }),
    computed_row("rope_parameters", import_given_rope),
    only_row("swiglu_alpha", "1.702", "another slope of its activation"),
    only_row("swiglu_limit", "7.0|7", "another limit of its activation"),
    ignored_row("initial_context_length"),  // which rope_scaling says as well
};
constexpr std::array<std::string_view, 1> kModelTypes{"gpt_oss"};
constexpr std::array kImports{
    FamilyImport{.model_types = kModelTypes, .architecture = "gpt-oss", .rows = kRows, .head_size = 64}};

}  // namespace

extern const Family kGptOss;
const Family kGptOss{.name = "gpt-oss",
                     .architectures = kArchitectures,
                     .summary = "gpt-oss 20B and 120B",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward,
                     .imports = kImports};

}  // namespace adze::model::family
