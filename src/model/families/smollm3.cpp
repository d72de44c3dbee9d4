// SmolLM3: the Llama layer, and every fourth layer does not rotate q and k (transformers, modeling_smollm3.py; NoPE
// layers: Yang et al. 2025, arXiv 2501.18795). As with Llama, GGUF stores W_q and W_k permuted for pairs (2i, 2i + 1).
#include <array>

#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr int kRotationPeriod = 4;  // layers 3, 7, 11 ... attend without positions; GGUF has no key for it

Result<Hyperparameters> config(const ConfigReader& reader) {
  ADZE_TRY(Hyperparameters p, decoder_config(reader));
  p.rope.interleaved = true;
  for (std::size_t i = kRotationPeriod - 1; i < p.layers.size(); i += kRotationPeriod) {
    p.layers[i].rope = LayerParameters::Rope::none;
  }
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return with_permuted_heads(join({stem_tensors(), pre_norm_tensors(), attention_tensors(), gated_tensors()}));
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"smollm3"};

// Only the period that GGUF implies: a 1 is a layer with rope.
Status check_no_rope_layers(ConfigImport& import) {
  ADZE_TRY(const auto layers, import.config().integers("no_rope_layers"));
  for (std::size_t i = 0; layers && i < layers->size(); ++i) {
    const bool rotated = i % kRotationPeriod != kRotationPeriod - 1;
    if ((*layers)[i] != (rotated ? 1 : 0))
      return refuse_setting(import, "no_rope_layers", "another choice of layers without rope");
  }
  return {};
}

constexpr ImportRow kRows[] = {computed_row("no_rope_layers", check_no_rope_layers),
                               only_row("no_rope_layer_interval", "4", "another choice of layers without rope"),
                               computed_row("use_sliding_window", import_full_attention),
                               ignored_row("sliding_window"),
                               ignored_row("layer_types"),
                               only_row("mlp_bias", "false", "biases in the feed-forward part"),
                               boolean_row("tie_word_embeddings", "tie_word_embeddings", "true")};
constexpr std::array<std::string_view, 1> kModelTypes{"smollm3"};
constexpr std::array kImports{FamilyImport{.model_types = kModelTypes, .architecture = "smollm3", .rows = kRows}};

}  // namespace

extern const Family kSmolLm3;
const Family kSmolLm3{.name = "smollm3",
                      .architectures = kArchitectures,
                      .summary = "SmolLM3",
                      .config = config,
                      .tensors = tensors,
                      .forward = forward,
                      .imports = kImports};

}  // namespace adze::model::family
