// Granite 3 (dense): the Llama layer with four multipliers (Granite team 2024; transformers, modeling_granite.py).
//
//   h_0     = e E[token]                                     e = embedding_scale
//   h      += m Attention(rms(h; attn_norm))                 m = residual_scale; scores times attention.scale
//   h      += m W_down (silu(W_gate x) * W_up x)             x = rms(h; ffn_norm)
//   logits  = W_out rms(h; output_norm) / s                  s = logit_scale
//
// Computed on h / m, to which a layer adds what it computes as it is: rms(h; eps) = rms(h / m; eps / m^2).
// GGUF has Llama's permuted W_q and W_k.
#include <array>

#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"embedding_scale", "residual_scale", "logit_scale"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  ADZE_TRY_STATUS(reader.refuse_unless("rope.scaling.finetuned", 1, "attention without rope"));
  ADZE_TRY(const float embedding, reader.number_or("embedding_scale", 1.0f, {0.0, 1e6}));
  ADZE_TRY(const float residual, reader.number_or("residual_scale", 1.0f, {0.0, 1e3}));
  ADZE_TRY(const float logits, reader.number("logit_scale", {0.0, 1e6}));
  ADZE_TRY(p.attention_scale, reader.number_or("attention.scale", 0.0f, {0.0, 1e4}));
  p.rope.interleaved = true;
  p.embedding_scale = embedding / residual;
  p.norm_epsilon /= residual * residual;
  p.logit_scale = 1.0f / logits;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return with_permuted_heads(join({stem_tensors(), pre_norm_tensors(), attention_tensors(), gated_tensors()}));
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"granite"};

constexpr ImportRow kRows[] = {number_row("embedding_multiplier", "embedding_scale", "1.0"),
                               number_row("residual_multiplier", "residual_scale", "1.0"),
                               number_row("attention_multiplier", "attention.scale", "1.0"),
                               number_row("logits_scaling", "logit_scale", "1.0"),
                               only_row("mlp_bias", "false", "biases in the feed-forward part")};
constexpr std::array<std::string_view, 1> kModelTypes{"granite"};
constexpr std::array kImports{FamilyImport{.model_types = kModelTypes, .architecture = "granite", .rows = kRows}};

}  // namespace

extern const Family kGranite;
const Family kGranite{.name = "granite",
                      .architectures = kArchitectures,
                      .summary = "Granite 3, dense",
                      .config = config,
                      .tensors = tensors,
                      .forward = forward,
                      .imports = kImports};

}  // namespace adze::model::family
