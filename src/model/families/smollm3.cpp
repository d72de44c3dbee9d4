// SmolLM3: the Llama layer, and every fourth layer does not rotate q and k (transformers, modeling_smollm3.py; NoPE
// layers: Yang et al. 2025, arXiv 2501.18795). As with Llama, GGUF stores W_q and W_k permuted for pairs (2i, 2i + 1).
#include <array>

#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr int kRotationPeriod = 4;  // layers 3, 7, 11 ... attend without positions; GGUF has no key for it

Result<Hyperparameters> config(const ConfigReader& reader) {
  ADZE_TRY_STATUS(refuse_other_settings(reader));
  ADZE_TRY(Hyperparameters p, read_sizes(reader));
  ADZE_TRY(p.norm_epsilon, reader.number("attention.layer_norm_rms_epsilon", {0.0, 1.0}));
  ADZE_TRY(p.rope, read_rope(reader, p));
  p.rope.interleaved = true;
  for (std::size_t i = kRotationPeriod - 1; i < p.layers.size(); i += kRotationPeriod) {
    p.layers[i].rope = LayerParameters::Rope::none;
  }
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return join({stem_tensors(), pre_norm_tensors(), attention_tensors(), gated_tensors()});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"smollm3"};

}  // namespace

extern const Family kSmolLm3;
const Family kSmolLm3{.name = "smollm3",
                      .architectures = kArchitectures,
                      .summary = "SmolLM3",
                      .config = config,
                      .tensors = tensors,
                      .forward = forward};

}  // namespace adze::model::family
