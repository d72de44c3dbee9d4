#include "sample/parameters.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "base/limits.hpp"

namespace adze::sample {
namespace {

tl::unexpected<Error> refuse(std::string_view field, const std::string& value, std::string_view allowed) {
  return fail(ErrorCode::invalid_argument, fmt::format("{} is {}, but must be {}", field, value, allowed));
}

// One row per number: the range is closed below and above unless the floor is excluded.
struct FloatRule {
  std::string_view field;
  float SamplerParameters::* value;
  float low, high;
  bool above_low;
  std::string_view allowed;
};

constexpr float kHuge = 1e30f;
constexpr FloatRule kFloatRules[] = {
    {"temperature", &SamplerParameters::temperature, 0, kHuge, false, "a number >= 0"},
    {"top_p", &SamplerParameters::top_p, 0, 1, false, "between 0 and 1"},
    {"min_p", &SamplerParameters::min_p, 0, 1, false, "between 0 and 1"},
    {"typical_p", &SamplerParameters::typical_p, 0, 1, false, "between 0 and 1"},
    {"repetition_penalty", &SamplerParameters::repetition_penalty, 0, kHuge, true, "a number > 0"},
    {"presence_penalty", &SamplerParameters::presence_penalty, -kHuge, kHuge, false, "a finite number"},
    {"frequency_penalty", &SamplerParameters::frequency_penalty, -kHuge, kHuge, false, "a finite number"},
    {"dry_multiplier", &SamplerParameters::dry_multiplier, 0, kHuge, false, "a number >= 0"},
    {"dry_base", &SamplerParameters::dry_base, 1, kHuge, false, "a number >= 1"},
};

struct IntRule {
  std::string_view field;
  int SamplerParameters::* value;
  int low;
  std::string_view allowed;
};

constexpr IntRule kIntRules[] = {
    {"top_k", &SamplerParameters::top_k, 0, "0 (off) or a count"},
    {"penalty_window", &SamplerParameters::penalty_window, -1, "-1 (the whole context), 0 (off) or a count"},
    {"dry_allowed_length", &SamplerParameters::dry_allowed_length, 1, "a count >= 1"},
    {"dry_window", &SamplerParameters::dry_window, -1, "-1 (the whole context), 0 (off) or a count"},
};

Status check_ids(std::string_view field, const std::vector<std::int32_t>& ids, int vocabulary) {
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary) {
      return refuse(field, fmt::format("for token {}", id), fmt::format("a token id from 0 to {}", vocabulary - 1));
    }
  }
  return {};
}

}  // namespace

Status validate(const SamplerParameters& parameters, int vocabulary) {
  for (const FloatRule& rule : kFloatRules) {
    const float value = parameters.*rule.value;
    // Written so that NaN fails.
    const bool good = value >= rule.low && value <= rule.high && !(rule.above_low && value == rule.low);
    if (!good) return refuse(rule.field, fmt::format("{}", value), rule.allowed);
  }
  for (const IntRule& rule : kIntRules) {
    const int value = parameters.*rule.value;
    if (value < rule.low) return refuse(rule.field, fmt::format("{}", value), rule.allowed);
  }
  if (parameters.logit_bias.size() > limits::kMaxLogitBiases) {
    return fail(ErrorCode::invalid_argument, fmt::format("logit_bias has {} entries, but at most {} are allowed",
                                                         parameters.logit_bias.size(), limits::kMaxLogitBiases));
  }
  for (const auto& [id, bias] : parameters.logit_bias) {
    if (id < 0 || id >= vocabulary) {
      return refuse("logit_bias", fmt::format("for token {}", id),
                    fmt::format("for a token id from 0 to {}", vocabulary - 1));
    }
    if (!(std::abs(bias) <= kHuge)) {
      return refuse("logit_bias", fmt::format("{} for token {}", bias, id), "a finite number");
    }
  }
  ADZE_TRY_STATUS(check_ids("dry_breakers", parameters.dry_breakers, vocabulary));
  ADZE_TRY_STATUS(check_ids("allowed", parameters.allowed, vocabulary));
  return check_ids("banned", parameters.banned, vocabulary);
}

std::string describe_chain(const SamplerParameters& p, bool with_seed) {
  std::string out;
  const auto add = [&out](const std::string& stage) {
    if (!out.empty()) out += " -> ";
    out += stage;
  };
  const auto window = [](int last) { return last < 0 ? std::string("all tokens") : fmt::format("last {}", last); };
  if (!p.banned.empty()) add(fmt::format("ban {} tokens", p.banned.size()));
  if (!p.allowed.empty()) add(fmt::format("allow {} tokens", p.allowed.size()));
  if (!p.logit_bias.empty()) add(fmt::format("logit-bias ({} tokens)", p.logit_bias.size()));
  if (p.penalty_window != 0) {
    std::string penalties;
    const auto one = [&penalties](std::string_view name, float value, float off) {
      if (value != off) penalties += fmt::format("{}{} {}", penalties.empty() ? "" : ", ", name, value);
    };
    one("repetition", p.repetition_penalty, 1.0f);
    one("presence", p.presence_penalty, 0.0f);
    one("frequency", p.frequency_penalty, 0.0f);
    if (!penalties.empty()) add(fmt::format("penalties ({}; {})", penalties, window(p.penalty_window)));
  }
  if (p.dry_multiplier > 0 && p.dry_window != 0) {
    add(fmt::format("dry {} (base {}, from {} tokens; {})", p.dry_multiplier, p.dry_base, p.dry_allowed_length,
                    window(p.dry_window)));
  }
  if (p.greedy()) {
    add("argmax");
    return out;
  }
  if (p.top_k > 0) add(fmt::format("top-k {}", p.top_k));
  if (p.typical_p < 1) add(fmt::format("typical-p {}", p.typical_p));
  if (p.top_p < 1) add(fmt::format("top-p {}", p.top_p));
  if (p.min_p > 0) add(fmt::format("min-p {}", p.min_p));
  add(fmt::format("temperature {}", p.temperature));
  add(with_seed ? fmt::format("draw (seed {})", p.seed) : std::string("draw"));
  return out;
}

}  // namespace adze::sample
