#include "engine/options.hpp"

#include <fmt/format.h>

#include <limits>

#include "base/limits.hpp"

namespace adze::engine {

sample::SamplerParameters to_parameters(const SamplingOptions& options) {
  return {.temperature = options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .typical_p = options.typical_p,
          .repetition_penalty = options.repetition_penalty,
          .presence_penalty = options.presence_penalty,
          .frequency_penalty = options.frequency_penalty,
          .penalty_window = options.penalty_window,
          .dry_multiplier = options.dry_multiplier,
          .dry_base = options.dry_base,
          .dry_allowed_length = options.dry_allowed_length,
          .dry_window = options.dry_window,
          .logit_bias = options.logit_bias};
}

Result<std::int64_t> check_max_tokens(std::int64_t max_tokens) {
  if (max_tokens == -1) return std::numeric_limits<std::int64_t>::max();
  if (max_tokens < 0) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("max_tokens is {}, but must be a count, or -1 for as many as fit", max_tokens));
  }
  return max_tokens;
}

Result<std::vector<std::int32_t>> check_stop_ids(const std::vector<std::int32_t>& ids, int vocabulary) {
  if (ids.size() > limits::kMaxStopIds) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} stop_ids were given, but at most {} are allowed", ids.size(), limits::kMaxStopIds),
                "leave some out");
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("stop_ids has {}, but must hold token ids from 0 to {}", id, vocabulary - 1));
    }
  }
  return ids;
}

Result<std::vector<std::int32_t>> find_breakers(const text::Tokenizer& tokenizer,
                                                const std::vector<std::string>& texts) {
  if (texts.size() > limits::kMaxDryBreakers) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} dry_sequence_breakers were given, but at most {} are allowed", texts.size(),
                            limits::kMaxDryBreakers),
                "leave some out");
  }
  std::vector<bool> found(texts.size());
  std::vector<std::int32_t> ids;
  std::string bytes;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    bytes.clear();
    tokenizer.append_bytes(id, bytes);
    bool breaks = false;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (bytes.find(texts[i]) == std::string::npos) continue;
      breaks = true;
      found[i] = true;
    }
    if (breaks) ids.push_back(id);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) return fail(ErrorCode::invalid_argument, "dry_sequence_breakers holds an empty string");
    if (found[i]) continue;
    ADZE_TRY(const std::vector<std::int32_t> encoded, tokenizer.encode(texts[i]));
    if (!encoded.empty()) ids.push_back(encoded.back());
  }
  return ids;
}

}  // namespace adze::engine
