// Gemma 4, text (transformers, modeling_gemma4.py). Gemma 3's layer, and much that differs from layer to layer.
//
//   h_0     = E[token] * sqrt(hidden)
//   ple     = (rms(W_ctx h_0 / sqrt(hidden); per_layer_proj_norm) + E_ple[token] * sqrt(P)) / sqrt(2)     [layers, P]
//   x       = rms(h; attn_norm)
//   q, k    = rope(rms(W_q x; attn_q_norm)), rope(rms(W_k x; attn_k_norm))      per head; pairs (i, i + d / 2)
//   v       = rms(W_v x), without a weight; W_k x where a layer has no W_v
//   h      += rms(W_o softmax(q k^T) v; post_attention_norm)                    scores are not scaled
//   m       = W_down (gelu(W_gate x) * W_up x),  x = rms(h; ffn_norm)
//   m       = rms(m; post_ffw_norm_1) + rms(experts(rms(h; pre_ffw_norm_2)); post_ffw_norm_2)     where there are
//   experts h      += rms(m; post_ffw_norm) h      += rms(W_proj (gelu(W_inp h) * ple[layer]); post_norm) where P > 0
//   h      *= layer_output_scale
//   logits  = cap(E rms(h; output_norm); 30)
//
// Sliding layers have heads, KV heads and a rotation of their own; full ones rotate a part of each head (rope_freqs
// leaves the other pairs still). The last `shared_kv_layers` store no keys and values: each reads those of the last
// layer of its kind before them. Experts: the router sees rms(h) * ffn_gate_inp.scale / sqrt(hidden).
#include <array>
#include <cmath>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr std::string_view kKnown[] = {"attention.sliding_window", "attention.sliding_window_pattern",
                                       "attention.shared_kv_layers", "final_logit_softcapping", "expert_count"};

Status read_sliding_layers(const ConfigReader& reader, Hyperparameters& p) {
  ADZE_TRY(const std::int64_t window, reader.integer("attention.sliding_window", {1, limits::kMaxContext}));
  ADZE_TRY(const std::int64_t head_size,
           reader.integer_or("attention.key_length_swa", p.layers[0].head_size, {1, limits::kMaxHeadSize}));
  ADZE_TRY_STATUS(reader.refuse_unless("attention.value_length_swa", static_cast<double>(head_size),
                                       "values of another size than keys"));
  ADZE_TRY(const auto slides, reader.flags_per_layer("attention.sliding_window_pattern", p.layers.size()));
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    if (!slides[i]) continue;
    p.layers[i].window = static_cast<int>(window);
    p.layers[i].head_size = static_cast<int>(head_size);
    p.layers[i].rope = LayerParameters::Rope::local;
  }
  ADZE_TRY(const std::int64_t dims, reader.integer_or("rope.dimension_count_swa", head_size, {2, head_size}));
  p.local_rope = {.dims = static_cast<int>(dims)};
  ADZE_TRY(p.local_rope.base, reader.number_or("rope.freq_base_swa", 10000.0f, {1.0, limits::kMaxRopeBase}));
  return {};
}

// Each of the last layers reads the last layer of its kind that stores keys and values.
Status share_keys_and_values(const ConfigReader& reader, Hyperparameters& p) {
  const int layers = p.layer_count();
  ADZE_TRY(const std::int64_t shared, reader.integer_or("attention.shared_kv_layers", 0, {0, layers - 1}));
  const int storing = layers - static_cast<int>(shared);
  for (int i = storing; i < layers; ++i) {
    LayerParameters& layer = p.layers[static_cast<std::size_t>(i)];
    for (int j = 0; j < storing; ++j) {
      const LayerParameters& source = p.layers[static_cast<std::size_t>(j)];
      if ((source.window > 0) == (layer.window > 0)) layer.kv_source = j;
    }
    const bool fits =
        layer.kv_source >= 0 && p.layers[static_cast<std::size_t>(layer.kv_source)].kv_heads == layer.kv_heads;
    if (!fits) {
      return fail(ErrorCode::corrupt_file,
                  fmt::format("layer {} shares keys and values by {}, but no layer before the last {} is of its kind",
                              i, reader.full("attention.shared_kv_layers"), shared),
                  "the file is damaged or was made by a broken converter: download or convert it again");
    }
  }
  return {};
}

Result<Hyperparameters> config(const ConfigReader& reader) {
  ADZE_TRY_STATUS(refuse_other_settings(reader, kKnown));
  ADZE_TRY(Hyperparameters p, read_sizes(reader));
  ADZE_TRY(p.norm_epsilon, reader.number("attention.layer_norm_rms_epsilon", {0.0, 1.0}));
  ADZE_TRY(p.rope, read_rope(reader, p));
  ADZE_TRY_STATUS(read_sliding_layers(reader, p));
  ADZE_TRY_STATUS(share_keys_and_values(reader, p));
  ADZE_TRY(p.final_softcap, reader.number_or("final_logit_softcapping", 0.0f, {-1.0, 1e6}));
  ADZE_TRY(const std::int64_t width, reader.integer_or("embedding_length_per_layer_input", 0, {0, limits::kMaxHidden}));
  p.layer_input_size = static_cast<int>(width);
  ADZE_TRY(const std::int64_t experts, reader.integer_or("expert_count", 0, {0, limits::kMaxExperts}));
  if (experts > 0) {
    ADZE_TRY(p.mixture, read_mixture(reader));
    ADZE_TRY_STATUS(reader.refuse_unless("embedding_length_per_layer_input", 0, "experts beside per-layer embeddings"));
    ADZE_TRY_STATUS(reader.refuse_unless("expert_shared_feed_forward_length", 0, "a shared expert"));
  }
  p.embedding_scale = std::sqrt(static_cast<float>(p.hidden_size));
  p.attention_scale = 1.0f;
  p.value_norm = true;
  p.activation = ops::Activation::gelu_tanh;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters& p) {
  using enum Need;
  constexpr Dim none = Dim::none, hidden = Dim::hidden, input = Dim::layer_input, inputs = Dim::all_layer_inputs;
  const std::vector<TensorRow> frame = join({stem_tensors(), sandwich_tensors(), gated_tensors()});
  const std::vector<TensorRow> own{
      {"blk.*.attn_q.weight", "model.layers.*.self_attn.q_proj.weight", Dim::query, hidden},
      {"blk.*.attn_q_norm.weight", "model.layers.*.self_attn.q_norm.weight", none, Dim::head},
      {"blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight", hidden, Dim::query},
      // Layers that share keys and values have none of these three; k == v layers have no attn_v.
      {"blk.*.attn_k.weight", "model.layers.*.self_attn.k_proj.weight", Dim::key_value, hidden, optional},
      {"blk.*.attn_k_norm.weight", "model.layers.*.self_attn.k_norm.weight", none, Dim::head, optional},
      {"blk.*.attn_v.weight", "model.layers.*.self_attn.v_proj.weight", Dim::key_value, hidden, optional},
      {"blk.*.layer_output_scale.weight", "model.layers.*.layer_scalar", none, Dim::one, optional},
  };
  const std::vector<TensorRow> layer_inputs{
      {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", Dim::vocabulary, inputs},
      {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight", inputs, hidden},
      {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", none, input},
      {"blk.*.inp_gate.weight", "model.layers.*.per_layer_input_gate.weight", input, hidden},
      {"blk.*.proj.weight", "model.layers.*.per_layer_projection.weight", hidden, input},
      {"blk.*.post_norm.weight", "model.layers.*.post_per_layer_input_norm.weight", none, hidden},
  };
  constexpr Dim experts = Dim::experts;
  const std::vector<TensorRow> mixture{
      {"blk.*.ffn_gate_inp.weight", "model.layers.*.router.proj.weight", experts, hidden},
      {"blk.*.ffn_gate_inp.scale", "model.layers.*.router.scale", none, hidden},
      {"blk.*.ffn_gate_up_exps.weight", "model.layers.*.experts.gate_up_proj", Dim::fused_expert_width, hidden,
       required, Transform::none, experts},
      {"blk.*.ffn_down_exps.weight", "model.layers.*.experts.down_proj", hidden, Dim::expert_width, required,
       Transform::none, experts},
      {"blk.*.ffn_down_exps.scale", "model.layers.*.router.per_expert_scale", none, experts},
      {"blk.*.post_ffw_norm_1.weight", "model.layers.*.post_feedforward_layernorm_1.weight", none, hidden},
      {"blk.*.pre_ffw_norm_2.weight", "model.layers.*.pre_feedforward_layernorm_2.weight", none, hidden},
      {"blk.*.post_ffw_norm_2.weight", "model.layers.*.post_feedforward_layernorm_2.weight", none, hidden},
  };
  const std::vector<TensorRow> nothing;
  return join({frame, own, p.layer_input_size > 0 ? layer_inputs : nothing, p.mixture.experts > 0 ? mixture : nothing});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter decoder(p, w, plan);
  decoder.embed();
  if (p.layer_input_size > 0) decoder.layer_inputs();
  for (int i = 0; i < p.layer_count(); ++i) {
    const std::vector<float> stored = w.values("blk.*.layer_output_scale.weight", i);
    const float scale = stored.empty() ? 1.0f : stored.front();
    decoder.begin_layer(i);
    decoder.norm("blk.*.attn_norm.weight");
    decoder.attention();
    decoder.add_normed_projection("blk.*.attn_output", "blk.*.post_attention_norm.weight");
    decoder.norm("blk.*.ffn_norm.weight");
    decoder.feed_forward();
    if (p.mixture.experts > 0) {
      decoder.add_normed_mixture(scale);
    } else if (p.layer_input_size == 0) {
      decoder.add_normed_projection("blk.*.ffn_down", "blk.*.post_ffw_norm.weight", scale);
    } else {
      decoder.add_normed_projection("blk.*.ffn_down", "blk.*.post_ffw_norm.weight");
      decoder.layer_input();
      decoder.add_normed_projection("blk.*.proj", "blk.*.post_norm.weight", scale);
    }
  }
  decoder.head();
}

constexpr std::array<std::string_view, 1> kArchitectures{"gemma4"};

}  // namespace

extern const Family kGemma4;
const Family kGemma4{.name = "gemma4",
                     .architectures = kArchitectures,
                     .summary = "Gemma 4, text",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward};

}  // namespace adze::model::family
