#include "model/rope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace adze::model {
namespace {

constexpr std::array kScalings{
    std::pair{RopeScaling::none, std::string_view("none")}, std::pair{RopeScaling::linear, std::string_view("linear")},
    std::pair{RopeScaling::llama3, std::string_view("llama3")}, std::pair{RopeScaling::yarn, std::string_view("yarn")},
    std::pair{RopeScaling::longrope, std::string_view("longrope")}};

double llama3_frequency(double frequency, const RopeSettings& s) {
  const double context = static_cast<double>(s.original_context);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < context / s.high_frequency_factor) return frequency;
  if (wavelength > context / s.low_frequency_factor) return frequency / s.factor;
  const double kept =
      (context / wavelength - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
  return ((1.0 - kept) / s.factor + kept) * frequency;
}

// The pair, as a real number, that makes `turns` turns within the original context.
double yarn_pair(double turns, const RopeSettings& s) {
  const double context = static_cast<double>(s.original_context);
  return s.dims * std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(s.base));
}

double yarn_frequency(double frequency, int pair, const RopeSettings& s) {
  const double fast = yarn_pair(s.beta_fast, s), slow = yarn_pair(s.beta_slow, s);
  const double first = std::max(s.round_ramp ? std::floor(fast) : fast, 0.0);
  const double last = std::min(s.round_ramp ? std::ceil(slow) : slow, static_cast<double>(s.dims - 1));
  const double ramp = std::clamp((pair - first) / std::max(last - first, 0.001), 0.0, 1.0);
  return ((1.0 - ramp) + ramp / s.factor) * frequency;
}

double scaled_frequency(double frequency, int pair, const RopeSettings& s) {
  switch (s.scaling) {
    case RopeScaling::none:
    case RopeScaling::longrope: return frequency;
    case RopeScaling::linear: return frequency / s.factor;
    case RopeScaling::llama3: return llama3_frequency(frequency, s);
    case RopeScaling::yarn: return yarn_frequency(frequency, pair, s);
  }
  ADZE_CHECK(false, "rope scaling {}", static_cast<int>(s.scaling));
}

Status check_positive(std::string_view setting, double value, double max) {
  if (value > 0.0 && value <= max) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("{} is {}, allowed is more than 0, at most {}", setting, value, max));
}

}  // namespace

double yarn_magnitude(double factor, double multiplier) {
  return factor <= 1.0 ? 1.0 : 0.1 * multiplier * std::log(factor) + 1.0;
}

std::string_view rope_scaling_name(RopeScaling scaling) {
  for (const auto& [value, name] : kScalings) {
    if (value == scaling) return name;
  }
  return "unknown";
}

std::optional<RopeScaling> rope_scaling_from_name(std::string_view name) {
  for (const auto& [value, known] : kScalings) {
    if (known == name) return value;
  }
  return std::nullopt;
}

Result<RopeSettings> apply_overrides(RopeSettings settings, const RopeOverrides& overrides) {
  if (overrides.frequency_base) {
    if (!(*overrides.frequency_base > 1.0 && *overrides.frequency_base <= limits::kMaxRopeBase)) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("the rope frequency base is {}, allowed is more than 1, at most {}",
                              *overrides.frequency_base, limits::kMaxRopeBase));
    }
    settings.base = *overrides.frequency_base;
  }
  if (overrides.original_context) {
    ADZE_TRY_STATUS(check_positive("the rope's original context", static_cast<double>(*overrides.original_context),
                                   static_cast<double>(limits::kMaxContext)));
    settings.original_context = *overrides.original_context;
  }
  if (overrides.factor) {
    ADZE_TRY_STATUS(check_positive("the rope scaling factor", *overrides.factor, limits::kMaxRopeFactor));
    settings.factor = *overrides.factor;
  }
  if (overrides.scaling) {
    const auto scaling = rope_scaling_from_name(*overrides.scaling);
    if (!scaling || scaling == RopeScaling::longrope) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("'{}' is no rope scaling that can be asked for", *overrides.scaling),
                  "use none, linear, llama3 or yarn");
    }
    settings.scaling = *scaling;
    settings.use_factors = !settings.factors_are_scaling;
    settings.attention_factor = 1.0;
  } else if (settings.scaling == RopeScaling::longrope && overrides.factor) {
    return fail(ErrorCode::invalid_argument, "the model's rope scaling, longrope, has no single factor to replace",
                "ask for another rope scaling as well: linear or yarn");
  } else if (settings.scaling == RopeScaling::none && overrides.factor) {
    settings.scaling = RopeScaling::linear;
  }
  return settings;
}

ops::RopeSpec make_rope(const RopeSettings& settings, std::span<const float> factors) {
  const int pairs = settings.dims / 2;
  if (factors.empty()) factors = settings.beyond_original ? settings.long_factors : settings.short_factors;
  ADZE_CHECK(factors.empty() || factors.size() == static_cast<std::size_t>(pairs), "{} factors for {} pairs",
             factors.size(), pairs);
  ops::RopeSpec spec;
  spec.interleaved = settings.interleaved;
  spec.inverse_frequency.reserve(static_cast<std::size_t>(pairs));
  for (int i = 0; i < pairs; ++i) {
    const bool still = settings.turned_pairs >= 0 && i >= settings.turned_pairs;
    const double plain = still ? 0.0 : std::pow(settings.base, -2.0 * i / settings.dims);
    const bool divided = settings.use_factors && !factors.empty();
    const double factor = divided ? static_cast<double>(factors[static_cast<std::size_t>(i)]) : 1.0;
    spec.inverse_frequency.push_back(static_cast<float>(scaled_frequency(plain, i, settings) / factor));
  }
  double magnitude = settings.attention_factor;
  if (settings.scaling == RopeScaling::yarn) magnitude *= yarn_magnitude(settings.factor);
  spec.magnitude = static_cast<float>(magnitude);
  return spec;
}

}  // namespace adze::model
