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
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

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
  // Only full layers may use keys as values; GGUF says so by leaving W_v out.
  using enum LayerParameters::Values;
  LayerParameters::Values full_values = either;
  if (reader.has(folder_key::kKeysAsValues)) {
    ADZE_TRY(const bool same, reader.flag_or(folder_key::kKeysAsValues, false));
    full_values = same ? keys : own;
  }
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    if (!slides[i]) {
      p.layers[i].values = full_values;
      continue;
    }
    p.layers[i].window = static_cast<int>(window);
    p.layers[i].head_size = static_cast<int>(head_size);
    p.layers[i].rope = LayerParameters::Rope::local;
  }
  ADZE_TRY(const std::int64_t dims, reader.integer_or("rope.dimension_count_swa", head_size, {2, head_size}));
  if (dims % 2 != 0) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{} is {}, allowed is an even number", reader.full("rope.dimension_count_swa"), dims),
                "the file is damaged or was made by a broken converter: download or convert it again");
  }
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
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  ADZE_TRY(const std::int64_t turned, reader.integer_or(folder_key::kTurnedPairs, -1, {0, p.rope.dims / 2}));
  p.rope.turned_pairs = static_cast<int>(turned);
  p.rope.factors_are_scaling = false;
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
  std::vector<TensorRow> frame = join({stem_tensors(), sandwich_tensors(), gated_tensors()});
  for (TensorRow& row : frame) {  // without it every pair of the full layers would turn
    if (row.gguf == "rope_freqs.weight" && p.rope.turned_pairs < 0) row.need = required;
  }
  const std::vector<TensorRow> own{
      {"blk.*.attn_q.weight", "model.layers.*.self_attn.q_proj.weight", Dim::query, hidden},
      {"blk.*.attn_q_norm.weight", "model.layers.*.self_attn.q_norm.weight", none, Dim::head},
      {"blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight", hidden, Dim::query},
      // Layers that share keys and values have none of these three.
      {"blk.*.attn_k.weight", "model.layers.*.self_attn.k_proj.weight", Dim::stored_key_value, hidden},
      {"blk.*.attn_k_norm.weight", "model.layers.*.self_attn.k_norm.weight", none, Dim::stored_head},
      {"blk.*.attn_v.weight", "model.layers.*.self_attn.v_proj.weight", Dim::stored_value, hidden, unless_keys},
      {"blk.*.layer_output_scale.weight", "model.layers.*.layer_scalar", none, Dim::one},
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
      {"blk.*.ffn_gate_exps.weight",
       {},
       Dim::expert_width,
       hidden,
       Need::optional,
       Transform::none,
       experts,
       "model.layers.*.experts.switch_glu.gate_proj.weight"},
      {"blk.*.ffn_up_exps.weight",
       {},
       Dim::expert_width,
       hidden,
       Need::optional,
       Transform::none,
       experts,
       "model.layers.*.experts.switch_glu.up_proj.weight"},
      {"blk.*.ffn_gate_up_exps.weight", "model.layers.*.experts.gate_up_proj", Dim::fused_expert_width, hidden,
       Need::unless_split, Transform::none, experts},
      {"blk.*.ffn_down_exps.weight", "model.layers.*.experts.down_proj", hidden, Dim::expert_width, required,
       Transform::none, experts, "model.layers.*.experts.switch_glu.down_proj.weight"},
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
    if (p.mixture.experts > 0) decoder.norm_mixture();
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

// --- config.json -----------------------------------------------------------------------------------------------------

constexpr std::string_view kTypes = "layer_types";

Result<std::int64_t> count_of(ConfigImport& import, std::string_view key, std::int64_t otherwise, std::int64_t most) {
  ADZE_TRY(const auto given, import.config().integer(key));
  const std::int64_t value = given.value_or(otherwise);
  if (value >= 0 && value <= most) return value;
  return fail(ErrorCode::corrupt_file,
              fmt::format("{}: {} is {}, allowed is 0 to {}", import.config().file(), key, value, most),
              "the file is damaged or of another kind of model: get it again");
}

// Whether each layer slides; the last one never does. By default every sixth sees everything.
Result<std::vector<bool>> layers_that_slide(ConfigImport& import) {
  ADZE_TRY(const std::int64_t layers, count_of(import, "num_hidden_layers", 30, limits::kMaxLayers));
  ADZE_TRY(std::vector<bool> slides, sliding_layers(import, layers, 6));
  if (!slides.empty()) slides.back() = false;
  return slides;
}

Status import_layer_types(ConfigImport& import) {
  ADZE_TRY(const std::vector<bool> slides, layers_that_slide(import));
  import.write_booleans("attention.sliding_window_pattern", slides, kTypes);
  return {};
}

// Full layers have heads of their own size, and, where their values are their keys, their own number of KV heads.
Status import_heads(ConfigImport& import) {
  constexpr std::string_view kGlobal = "global_head_dim", kKvHeads = "num_key_value_heads";
  ADZE_TRY(const std::int64_t sliding, import.head_size());
  ADZE_TRY(const std::int64_t full, count_of(import, kGlobal, 512, limits::kMaxHeadSize));
  for (const std::string_view key : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    import.write_integer(key, full, kGlobal);
    import.write_integer(fmt::format("{}_swa", key), sliding, "head_dim");
  }
  ADZE_TRY(const std::vector<bool> slides, layers_that_slide(import));
  ADZE_TRY(const std::int64_t usual, count_of(import, kKvHeads, 4, limits::kMaxHeads));
  ADZE_TRY(const auto same, import.config().boolean("attention_k_eq_v"));
  ADZE_TRY(const std::int64_t global, count_of(import, "num_global_key_value_heads", usual, limits::kMaxHeads));
  std::vector<std::int64_t> heads;
  for (const bool slide : slides) heads.push_back(!slide && same.value_or(false) ? global : usual);
  import.write_integers("attention.head_count_kv", heads, kKvHeads);
  import.write_boolean(folder_key::kKeysAsValues, same.value_or(false), "attention_k_eq_v");
  return {};
}

// Layers that share keys and values may have a feed-forward part of twice the width.
Status import_widths(ConfigImport& import) {
  constexpr std::string_view kWidth = "intermediate_size", kShared = "num_kv_shared_layers";
  ADZE_TRY(const std::vector<bool> slides, layers_that_slide(import));
  const auto layers = static_cast<std::int64_t>(slides.size());
  ADZE_TRY(const std::int64_t width, count_of(import, kWidth, 9216, limits::kMaxFeedForward));
  ADZE_TRY(const std::int64_t shared, count_of(import, kShared, 0, layers));
  ADZE_TRY(const auto twice, import.config().boolean("use_double_wide_mlp"));
  std::vector<std::int64_t> widths(slides.size(), width);
  for (std::int64_t i = layers - shared; twice.value_or(false) && i < layers; ++i) {
    widths[static_cast<std::size_t>(i)] = 2 * width;
  }
  import.write_integers("feed_forward_length", widths, kWidth);
  import.write_integer("attention.shared_kv_layers", shared, kShared);
  return {};
}

// Sliding layers turn every pair; full ones the first of them only ("proportional": exponents over the whole head).
Status import_ropes(ConfigImport& import) {
  constexpr std::string_view kRopes = "rope_parameters";
  ADZE_TRY(const auto kinds, import.config().object(kRopes));
  if (!kinds || !kinds->is_object("full_attention") || !kinds->is_object("sliding_attention")) {
    return refuse_setting(import, kRopes, "a rotation that is not given for each kind of layer");
  }
  ADZE_TRY(const auto full, kinds->object("full_attention"));
  ADZE_TRY(const auto sliding, kinds->object("sliding_attention"));
  const auto is = [](const format::JsonObject& rope, std::string_view type) {
    return rope.has("rope_type") && rope.json("rope_type") == type;
  };
  if (!is(*full, R"("proportional")") || full->has("factor") ||
      (sliding->has("rope_type") && !is(*sliding, R"("default")"))) {
    return refuse_setting(import, kRopes, "another scaling of the rotation");
  }
  ADZE_TRY(const auto theta, full->number("rope_theta"));
  ADZE_TRY(const auto local, sliding->number("rope_theta"));
  ADZE_TRY(const auto part, full->number("partial_rotary_factor"));
  ADZE_TRY(const std::int64_t head_size, count_of(import, "global_head_dim", 512, limits::kMaxHeadSize));
  import.write_number("rope.freq_base", theta.value_or(1e6), kRopes);
  import.write_number("rope.freq_base_swa", local.value_or(1e4), kRopes);
  const double turned = part.value_or(0.25) * static_cast<double>(head_size) / 2.0;
  import.write_integer(folder_key::kTurnedPairs, static_cast<std::int64_t>(std::clamp(turned, -1.0, 1e6)), kRopes);
  return {};
}

Status import_mixture(ConfigImport& import) {
  ADZE_TRY(const auto enabled, import.config().boolean("enable_moe_block"));
  if (!enabled.value_or(false)) return {};
  constexpr std::pair<std::string_view, std::string_view> kCounts[] = {
      {"num_experts", "expert_count"},
      {"top_k_experts", "expert_used_count"},
      {"moe_intermediate_size", "expert_feed_forward_length"}};
  for (const auto& [key, target] : kCounts) {
    ADZE_TRY(const std::int64_t value, count_of(import, key, 0, limits::kMaxFeedForward));
    if (value == 0) return refuse_setting(import, "enable_moe_block", fmt::format("experts without {}", key));
    import.write_integer(target, value, key);
  }
  return {};
}

constexpr ImportRow kRows[] = {
    integer_row("num_hidden_layers", "block_count", "30"),
    integer_row("hidden_size", "embedding_length", "2304"),
    integer_row("num_attention_heads", "attention.head_count", "8"),
    integer_row("max_position_embeddings", "context_length", "131072"),
    integer_row("vocab_size", "vocab_size", "262144"),
    integer_row("sliding_window", "attention.sliding_window", "512"),
    integer_row("hidden_size_per_layer_input", "embedding_length_per_layer_input", "256"),
    number_row("final_logit_softcapping", "final_logit_softcapping"),
    computed_row("head_dim", import_heads),
    computed_row("intermediate_size", import_widths),
    computed_row("layer_types", import_layer_types),
    computed_row("rope_parameters", import_ropes),
    computed_row("enable_moe_block", import_mixture),
    ignored_row("num_key_value_heads"),
    ignored_row("num_global_key_value_heads"),
    ignored_row("global_head_dim"),
    ignored_row("attention_k_eq_v"),
    ignored_row("num_kv_shared_layers"),
    ignored_row("use_double_wide_mlp"),
    ignored_row("num_experts"),
    ignored_row("top_k_experts"),
    ignored_row("moe_intermediate_size"),
    only_row("attention_bias", "false", "attention with biases"),
    ignored_row("vocab_size_per_layer_input"),  // the table's own shape is checked
    only_row("per_layer_config", "null", "sizes given layer by layer"),
    only_row("hidden_activation", R"("gelu_pytorch_tanh")", "another activation"),
    ignored_row("hidden_act"),
    only_row("use_bidirectional_attention", "false", "attention to later positions"),
    boolean_row("tie_word_embeddings", "tie_word_embeddings", "true"),
};
constexpr std::array<std::string_view, 1> kModelTypes{"gemma4_text"};
constexpr std::array kImports{
    FamilyImport{.model_types = kModelTypes, .architecture = "gemma4", .rows = kRows, .head_size = 256}};

}  // namespace

extern const Family kGemma4;
const Family kGemma4{.name = "gemma4",
                     .architectures = kArchitectures,
                     .summary = "Gemma 4, text",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward,
                     .imports = kImports};

}  // namespace adze::model::family
