// Gemma 3, text: Gemma 2's layer with norms of q and k in place of soft-caps (Gemma team 2025, arXiv 2503.19786).
//
//   h_0     = E[token] * sqrt(hidden)
//   x       = rms(h; attn_norm)
//   q, k    = rope(rms(W_q x; attn_q_norm)), rope(rms(W_k x; attn_k_norm))      per head; pairs (i, i + d / 2)
//   h      += rms(W_o softmax(q k^T / sqrt(d)) v; post_attention_norm)
//   x       = rms(h; ffn_norm)
//   h      += rms(W_down (gelu(W_gate x) * W_up x); post_ffw_norm)
//   logits  = E rms(h; output_norm)
//
// Of every six layers five slide, with a rotation of their own (base 10,000, not scaled); the sixth sees everything.
// GGUF norms hold 1 + w, safetensors norms w. The scale of scores is 1 / sqrt(query_pre_attn_scalar), which GGUF does
// not carry: it is the head size there.
#include <array>
#include <cmath>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr int kPeriod = 6;  // layers 5, 11, 17 ... are full; GGUF has no key for it

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  ADZE_TRY(p.attention_scale, gemma_attention_scale(reader, p, 62));
  p.local_rope = {.dims = p.rope.dims};
  ADZE_TRY(p.local_rope.base, reader.number_or("rope.freq_base_swa", 10000.0f, {1.0, limits::kMaxRopeBase}));
  ADZE_TRY(const std::int64_t window, reader.integer("attention.sliding_window", {1, limits::kMaxContext}));
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    if (i % kPeriod == kPeriod - 1) continue;
    p.layers[i].window = static_cast<int>(window);
    p.layers[i].rope = LayerParameters::Rope::local;
  }
  p.embedding_scale = std::sqrt(static_cast<float>(p.hidden_size));
  p.activation = ops::Activation::gelu_tanh;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return with_norms_around_zero(
      join({stem_tensors(), attention_tensors(), head_norm_tensors(), gated_tensors(), sandwich_tensors()}));
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).sandwich_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"gemma3"};

// The rotation of the full layers, and of the sliding ones to keys in _swa: in two keys, or (transformers 5) in one
// object with a member for each kind of layer.
Status import_ropes(ConfigImport& import) {
  const format::JsonObject& config = import.config();
  ADZE_TRY(const auto kinds, config.object("rope_parameters"));
  if (kinds && kinds->is_object("full_attention")) {
    ADZE_TRY(const auto full, kinds->object("full_attention"));
    ADZE_TRY(const auto sliding, kinds->object("sliding_attention"));
    ADZE_TRY_STATUS(import_rope_object(import, &*full, 1e6, "rope_parameters", ""));
    const bool plain = !sliding || !sliding->has("rope_type") || sliding->json("rope_type") == R"("default")";
    if (!plain) return refuse_setting(import, "rope_parameters", "scaled rope in sliding layers");
    return import_rope_object(import, sliding ? &*sliding : nullptr, 1e4, "rope_parameters", "_swa");
  }
  ADZE_TRY(const auto scaling, config.object("rope_scaling"));
  ADZE_TRY(const auto theta, config.number("rope_theta"));
  ADZE_TRY(const auto local, config.number("rope_local_base_freq"));
  ADZE_TRY_STATUS(import_rope_object(import, scaling ? &*scaling : nullptr, theta.value_or(1e6), "rope_scaling", ""));
  return import_rope_object(import, nullptr, local.value_or(1e4), "rope_local_base_freq", "_swa");
}

// A multimodal model's text_config leaves out what equals the defaults of its class.
constexpr ImportRow kRows[] = {
    integer_row("num_hidden_layers", "block_count", "26"),
    integer_row("hidden_size", "embedding_length", "2304"),
    integer_row("intermediate_size", "feed_forward_length", "9216"),
    integer_row("num_attention_heads", "attention.head_count", "8"),
    integer_row("num_key_value_heads", "attention.head_count_kv", "4"),
    integer_row("max_position_embeddings", "context_length", "131072"),
    integer_row("vocab_size", "vocab_size", "262208"),
    integer_row("sliding_window", "attention.sliding_window", "4096"),
    computed_row("rope_parameters", import_ropes),
    ignored_row("rope_local_base_freq"),
    computed_row("query_pre_attn_scalar", import_query_scale),
    computed_row("layer_types", [](ConfigImport& import) { return check_layer_types(import, kPeriod); }),
    only_row("sliding_window_pattern", "6", "another pattern of sliding layers"),
    only_row("_sliding_window_pattern", "6", "another pattern of sliding layers"),
    only_row("attn_logit_softcapping", "null", "soft-capped attention scores"),
    only_row("final_logit_softcapping", "null", "soft-capped logits"),
    only_row("hidden_activation", R"("gelu_pytorch_tanh")", "another activation"),
    ignored_row("hidden_act"),
    ignored_row("cache_implementation"),
    only_row("use_bidirectional_attention", "false", "attention to later positions"),
    boolean_row("tie_word_embeddings", "tie_word_embeddings", "true"),
};
constexpr std::array<std::string_view, 1> kModelTypes{"gemma3_text"};
constexpr std::array kImports{
    FamilyImport{.model_types = kModelTypes, .architecture = "gemma3", .rows = kRows, .head_size = 256}};

}  // namespace

extern const Family kGemma3;
const Family kGemma3{.name = "gemma3",
                     .architectures = kArchitectures,
                     .summary = "Gemma 3, text",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward,
                     .imports = kImports};

}  // namespace adze::model::family
