// rope_theta beside rope_scaling (as most released checkpoints have them), or both in rope_parameters (as transformers
// 5 saves them), to GGUF's rope.* keys. What each scaling computes: model/rope.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "format/metadata.hpp"
#include "model/huggingface/import.hpp"
#include "model/hyperparameters.hpp"
#include "model/rope.hpp"

namespace adze::model {
namespace {

using format::JsonObject;

tl::unexpected<Error> unsupported(const JsonObject& rope, std::string_view what) {
  return fail(ErrorCode::unsupported_feature, fmt::format("{}: {} is not one that Adze computes", rope.file(), what),
              "running it without would give wrong answers; use another model");
}

// transformers multiplies cos and sin by attention_factor where it is given, else by a quotient of mscales, else by
// yarn_magnitude(factor). Adze's rope always has the last: what is written is the rest.
Status import_yarn(ConfigImport& import, const JsonObject& rope, double factor, std::string_view source,
                   std::string_view suffix) {
  const auto key = [&](std::string_view name) { return fmt::format("rope.scaling.{}{}", name, suffix); };
  ADZE_TRY(const auto truncate, rope.boolean("truncate"));
  import.write_boolean(fmt::format("{}{}", folder_key::kRoundRamp, suffix), truncate.value_or(true), source);
  ADZE_TRY(const auto fast, rope.number("beta_fast"));
  ADZE_TRY(const auto slow, rope.number("beta_slow"));
  if (fast) import.write_number(key("yarn_beta_fast"), *fast, source);
  if (slow) import.write_number(key("yarn_beta_slow"), *slow, source);
  ADZE_TRY(const auto given, rope.number("attention_factor"));
  ADZE_TRY(const auto scale, rope.number("mscale"));
  ADZE_TRY(const auto scale_all, rope.number("mscale_all_dim"));
  const double usual = yarn_magnitude(factor);
  double magnitude = usual;
  if (given) {
    magnitude = *given;
  } else if (scale && scale_all && *scale != 0.0 && *scale_all != 0.0) {
    magnitude = yarn_magnitude(factor, *scale) / yarn_magnitude(factor, *scale_all);
  }
  if (magnitude != usual) import.write_number(key("attn_factor"), magnitude / usual, source);
  return {};
}

// Both sets of factors, and what transformers multiplies cos and sin by: attention_factor where it is given, else
// sqrt(1 + ln(factor) / ln(original context)), the factor by default the quotient of both contexts.
Status import_long_rope(ConfigImport& import, const JsonObject& rope, std::int64_t original, std::string_view source,
                        std::string_view suffix) {
  const auto key = [&](std::string_view name) { return fmt::format("rope.scaling.{}{}", name, suffix); };
  import.write_text(key("type"), "longrope", source);
  import.write_integer(key("original_context_length"), original, source);
  for (const auto& [member, target] :
       {std::pair{"short_factor", folder_key::kShortFactors}, std::pair{"long_factor", folder_key::kLongFactors}}) {
    ADZE_TRY(const auto factors, rope.numbers(member));
    if (!factors) {
      return fail(ErrorCode::corrupt_file,
                  fmt::format("{}: the rope scaling 'longrope' has no {}", rope.file(), member), "get the file again");
    }
    import.write_numbers(fmt::format("{}{}", target, suffix), *factors, source);
  }
  ADZE_TRY(auto magnitude, rope.number("attention_factor"));
  if (!magnitude) {
    ADZE_TRY(auto factor, rope.number("factor"));
    ADZE_TRY(const auto context, import.config().integer("max_position_embeddings"));
    if (!factor) factor = static_cast<double>(context.value_or(original)) / static_cast<double>(original);
    magnitude = *factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(*factor) / std::log(static_cast<double>(original)));
  }
  import.write_number(key("attn_factor"), *magnitude, source);
  return {};
}

// All members of the object are known: a scaling has few, and each changes what is computed.
Status check_members(const JsonObject& rope, std::string_view type, std::span<const std::string_view> known) {
  constexpr std::string_view kCommon[] = {
      "rope_type", "type",          "rope_theta",       "partial_rotary_factor", "original_max_position_embeddings",
      "factor",    "mrope_section", "mrope_interleaved"};  // of images; text has one position
  constexpr std::string_view kLlama3[] = {"low_freq_factor", "high_freq_factor"};
  constexpr std::string_view kYarn[] = {"beta_fast", "beta_slow",      "attention_factor",
                                        "mscale",    "mscale_all_dim", "truncate"};
  constexpr std::string_view kLongRope[] = {"short_factor", "long_factor", "attention_factor"};
  for (const std::string& name : rope.keys()) {
    const auto among = [&](const auto& list) { return std::ranges::find(list, name) != std::end(list); };
    if (!rope.has(name) || among(kCommon) || among(known) || (type == "llama3" && among(kLlama3)) ||
        (type == "yarn" && among(kYarn)) || (type == "longrope" && among(kLongRope)))
      continue;
    return unsupported(rope, fmt::format("the rope setting \"{}\" of '{}'", format::printable(name), type));
  }
  return {};
}

}  // namespace

Status import_rope_object(ConfigImport& import, const JsonObject* rope, std::optional<double> theta,
                          std::string_view source, std::string_view suffix, std::span<const std::string_view> known) {
  if (rope != nullptr) {
    ADZE_TRY(const auto inner, rope->number("rope_theta"));
    if (inner) theta = inner;
  }
  import.write_number(fmt::format("rope.freq_base{}", suffix), theta.value_or(10000.0), "rope_theta");
  if (rope == nullptr) return {};
  ADZE_TRY(auto type, rope->text("rope_type"));
  if (!type) {
    ADZE_TRY(type, rope->text("type"));
  }
  std::string scaling = type.value_or("default");
  if (scaling == "su") scaling = "longrope";  // its first name
  ADZE_TRY_STATUS(check_members(*rope, scaling, known));
  if (scaling == "default" || scaling == "mrope") return {};
  // A config of its own beside the object wins, as in transformers; it is Phi's way to say it.
  ADZE_TRY(auto original, import.config().integer("original_max_position_embeddings"));
  if (!original) {
    ADZE_TRY(original, rope->integer("original_max_position_embeddings"));
  }
  if (scaling == "longrope") {
    ADZE_TRY(const auto context, import.config().integer("max_position_embeddings"));
    return import_long_rope(import, *rope, std::max<std::int64_t>(original.value_or(context.value_or(1)), 1), source,
                            suffix);
  }
  if (scaling != "linear" && scaling != "llama3" && scaling != "yarn") {
    return unsupported(*rope, fmt::format("the rope scaling '{}'", format::printable(scaling)));
  }
  ADZE_TRY(const auto factor, rope->number("factor"));
  if (!factor) {
    return fail(ErrorCode::corrupt_file, fmt::format("{}: the rope scaling '{}' has no factor", rope->file(), scaling),
                "get the file again");
  }
  const auto key = [&](std::string_view name) { return fmt::format("rope.scaling.{}{}", name, suffix); };
  import.write_text(key("type"), scaling, source);
  import.write_number(key("factor"), *factor, source);
  if (original) import.write_integer(key("original_context_length"), *original, source);
  if (scaling == "yarn") return import_yarn(import, *rope, *factor, source, suffix);
  if (scaling == "linear") return {};
  ADZE_TRY(const auto low, rope->number("low_freq_factor"));
  ADZE_TRY(const auto high, rope->number("high_freq_factor"));
  if (low) import.write_number(key("low_freq_factor"), *low, source);
  if (high) import.write_number(key("high_freq_factor"), *high, source);
  return {};
}

Status import_rope(ConfigImport& import) { return import_rope(import, {}); }

Status import_rope(ConfigImport& import, std::span<const std::string_view> known) {
  const JsonObject& config = import.config();
  const std::string_view source = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  ADZE_TRY(const auto rope, config.object(source));
  ADZE_TRY(const auto theta, config.number("rope_theta"));
  ADZE_TRY_STATUS(import_rope_object(import, rope ? &*rope : nullptr, theta, source, "", known));
  if (rope && rope->has("mrope_section")) {  // of images; text has one position, but other readers ask for it
    ADZE_TRY(auto sections, rope->integers("mrope_section"));
    sections->resize(4, 0);
    import.write_integers("rope.dimension_sections", *sections, source);
  }
  ADZE_TRY(auto part, config.number("partial_rotary_factor"));
  if (!part && rope) {
    ADZE_TRY(part, rope->number("partial_rotary_factor"));
  }
  if (!part) return {};
  ADZE_TRY(const std::int64_t head_size, import.head_size());
  const double dims = static_cast<double>(head_size) * *part;  // out of range: the reader of the key refuses it
  import.write_integer("rope.dimension_count", static_cast<std::int64_t>(std::clamp(dims, -1.0, 1e9)),
                       "partial_rotary_factor");
  return {};
}

}  // namespace adze::model
