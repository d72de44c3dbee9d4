// Ministral 3, and the text part of Mistral Small 3: the Llama layer for long contexts (transformers,
// modeling_ministral3.py; queries that grow with their position: Nakanishi 2025, arXiv 2501.19399).
//
//   q, k   = rope(W_q x), rope(W_k x)                        YaRN, whose magnitudes cancel (mscale = mscale_all_dim)
//   q     *= 1 + b ln(1 + floor(position / C))               b = attention.temperature_scale, C = the original context
//   the rest as in Llama, GGUF's permuted W_q and W_k as well
#include <fmt/format.h>

#include <array>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window", "attention.temperature_scale"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  p.rope.interleaved = true;
  ADZE_TRY(p.position_scale, reader.number_or("attention.temperature_scale", 0.0f, {0.0, 100.0}));
  p.position_interval = static_cast<int>(p.rope.original_context);
  ADZE_TRY(const std::int64_t window, reader.integer_or("attention.sliding_window", 0, {0, limits::kMaxContext}));
  for (LayerParameters& layer : p.layers) layer.window = static_cast<int>(window);
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return with_permuted_heads(join({stem_tensors(), pre_norm_tensors(), attention_tensors(), gated_tensors()}));
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"mistral3"};

// transformers has a default for the whole of rope_parameters, which no released model relies on.
Status import_long_rope(ConfigImport& import) {
  constexpr std::string_view kBeta = "llama_4_scaling_beta";
  constexpr std::string_view kKnown[] = {kBeta, "max_position_embeddings"};
  const format::JsonObject& config = import.config();
  ADZE_TRY(const auto rope, config.object("rope_parameters"));
  if (!rope) {
    return fail(ErrorCode::corrupt_file, fmt::format("{} has no rope_parameters", config.file()),
                "get the file again, from a model saved by transformers 5");
  }
  ADZE_TRY(const auto beta, rope->number(kBeta));
  if (beta && *beta != 0.0) import.write_number("attention.temperature_scale", *beta, "rope_parameters");
  return import_rope(import, kKnown);
}

constexpr ImportRow kRows[] = {computed_row("rope_parameters", import_long_rope),
                               integer_row("sliding_window", "attention.sliding_window"),
                               integer_row("num_key_value_heads", "attention.head_count_kv", "8"),
                               integer_row("max_position_embeddings", "context_length", "262144"),
                               number_row("rms_norm_eps", "attention.layer_norm_rms_epsilon", "1e-5"),
                               ignored_row("attention_bias")};  // Ministral's code has none
constexpr std::array<std::string_view, 1> kModelTypes{"ministral3"};
constexpr std::array kImports{
    FamilyImport{.model_types = kModelTypes, .architecture = "mistral3", .rows = kRows, .head_size = 128}};

}  // namespace

extern const Family kMinistral3;
const Family kMinistral3{.name = "ministral3",
                         .architectures = kArchitectures,
                         .summary = "Ministral 3 and other text models of the architecture mistral3",
                         .config = config,
                         .tensors = tensors,
                         .forward = forward,
                         .imports = kImports};

}  // namespace adze::model::family
