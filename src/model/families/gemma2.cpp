// Gemma 2: norms before and behind each part, every second layer slides (Gemma team 2024, arXiv 2408.00118).
//
//   h_0     = E[token] * sqrt(hidden)
//   x       = rms(h; attn_norm)
//   q, k    = rope(W_q x), rope(W_k x)                       pairs (i, i + d / 2)
//   a       = softmax(cap(q k^T / sqrt(d); 50)) v            cap(s; c) = tanh(s / c) c, before the mask; layers 0, 2, 4
//   ... h      += rms(W_o a; post_attention_norm)                see the last `sliding_window` positions only x       =
//   rms(h; ffn_norm) h      += rms(W_down (gelu(W_gate x) * W_up x); post_ffw_norm) logits  = cap(E rms(h;
//   output_norm); 30)
//
// GGUF norms hold 1 + w, safetensors norms w. The scale of scores is 1 / sqrt(query_pre_attn_scalar), which GGUF does
// not carry: see gemma_attention_scale.
#include <array>
#include <cmath>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window", "attn_logit_softcapping",
                                         "final_logit_softcapping"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  ADZE_TRY(p.attention_scale, gemma_attention_scale(reader, p, 46));
  ADZE_TRY(p.attention_softcap, reader.number_or("attn_logit_softcapping", 50.0f, {0.0, 1e6}));
  ADZE_TRY(p.final_softcap, reader.number_or("final_logit_softcapping", 30.0f, {0.0, 1e6}));
  ADZE_TRY(const std::int64_t window, reader.integer_or("attention.sliding_window", 4096, {1, limits::kMaxContext}));
  for (std::size_t i = 0; i < p.layers.size(); i += 2) p.layers[i].window = static_cast<int>(window);
  p.embedding_scale = std::sqrt(static_cast<float>(p.hidden_size));
  p.activation = ops::Activation::gelu_tanh;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return with_norms_around_zero(join({stem_tensors(), attention_tensors(), gated_tensors(), sandwich_tensors()}));
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).sandwich_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"gemma2"};

// The soft-caps have defaults in GGUF, so a model without one must not slip through.
Status import_softcaps(ConfigImport& import) {
  for (const auto& [key, usual] :
       {std::pair{"attn_logit_softcapping", 50.0}, std::pair{"final_logit_softcapping", 30.0}}) {
    if (import.config().contains(key) && !import.config().has(key))
      return refuse_setting(import, key, "logits without a soft-cap");
    ADZE_TRY(const auto cap, import.config().number(key));
    import.write_number(key, cap.value_or(usual), key);
  }
  return {};
}

constexpr ImportRow kRows[] = {
    computed_row("attn_logit_softcapping", import_softcaps),
    ignored_row("final_logit_softcapping"),
    computed_row("query_pre_attn_scalar", import_query_scale),
    integer_row("sliding_window", "attention.sliding_window", "4096"),
    computed_row("layer_types", [](ConfigImport& import) { return check_layer_types(import, 2); }),
    only_row("hidden_activation", R"("gelu_pytorch_tanh")", "another activation"),
    ignored_row("hidden_act"),
    ignored_row("cache_implementation"),
    only_row("use_bidirectional_attention", "false", "attention to later positions"),
    boolean_row("tie_word_embeddings", "tie_word_embeddings", "true"),
};
constexpr std::array<std::string_view, 1> kModelTypes{"gemma2"};
constexpr std::array kImports{
    FamilyImport{.model_types = kModelTypes, .architecture = "gemma2", .rows = kRows, .head_size = 256}};

}  // namespace

extern const Family kGemma2;
const Family kGemma2{.name = "gemma2",
                     .architectures = kArchitectures,
                     .summary = "Gemma 2",
                     .config = config,
                     .tensors = tensors,
                     .forward = forward,
                     .imports = kImports};

}  // namespace adze::model::family
