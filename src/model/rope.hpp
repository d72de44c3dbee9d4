// Rotary position embedding: from what a model file says (and a caller overrides) to the table that AttentionPrep uses.
//
// A pair i of a head's first `dims` values is turned by the angle position * frequency(i); unscaled,
//   frequency(i) = base^(-2i / dims)                                     Su et al. 2021, arXiv 2104.09864
// and every scaling is another way to slow the pairs down for contexts longer than the trained one (s = factor):
//   linear   frequency / s                                               Chen et al. 2023, arXiv 2306.15595
//   llama3   by wavelength w = 2 pi / frequency against the original context C:
//            kept for w < C / high, divided by s for w > C / low, and between them
//            ((1 - m) / s + m) * frequency  with  m = (C / w - low) / (high - low)
//                                                                        transformers, modeling_rope_utils.py
//   yarn     ((1 - r) + r / s) * frequency, r a ramp from 0 to 1 over the pairs between those that turn beta_fast and
//            beta_slow times in the original context (ends rounded outwards, or not); cos and sin are multiplied by
//            0.1 ln(s) + 1                                               Peng et al. 2023, arXiv 2309.00071
//   longrope frequency / f(i), with one set of factors f for contexts of up to C positions and another beyond; cos and
//            sin are multiplied by sqrt(1 + ln(s) / ln(C))               Ding et al. 2024, arXiv 2402.13753
//            The keys of a cache are turned once, so the set is chosen by the context that a model is loaded for, not
//            by the length of a text: a text is computed as transformers computes it at once where both are on the
//            same side of C.
// A tensor of per-pair factors in the file (rope_freqs.weight) divides the frequencies; it is how GGUF carries llama3.
// Everything is computed in double and rounded to float32 once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "ops/steps.hpp"

namespace adze::model {

enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn, longrope };
std::string_view rope_scaling_name(RopeScaling scaling);
// "none", "linear", "llama3", "yarn", "longrope"; nothing for another word.
std::optional<RopeScaling> rope_scaling_from_name(std::string_view name);

struct RopeSettings {
  int dims = 0;              // rotated values of each head, even; the others pass through
  bool interleaved = false;  // pairs (2i, 2i + 1); else (i, i + dims / 2)
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;                // s above
  std::int64_t original_context = 0;  // C above: positions before scaling
  double low_frequency_factor = 1.0;  // llama3
  double high_frequency_factor = 4.0;
  double beta_fast = 32.0;  // yarn
  double beta_slow = 1.0;
  int turned_pairs = -1;                               // pairs from here on stay as they are; -1: all turn
  bool round_ramp = true;                              // yarn: the ramp's ends outwards to whole pairs
  double attention_factor = 1.0;                       // multiplies cos and sin, once more under yarn
  std::vector<float> short_factors{}, long_factors{};  // longrope [dims / 2]: up to the original context, and beyond
  bool beyond_original = false;                        // the context is: longrope's long factors hold
  bool factors_are_scaling = true;  // the file's factors for each pair are a scaling, which another one replaces
  bool use_factors = true;          // divide by the factors that the file has for each pair, if it has any
};

// 0.1 m ln(factor) + 1: what YaRN multiplies cos and sin by, with m = 1.
double yarn_magnitude(double factor, double multiplier = 1.0);

// What a caller wants instead; unset fields keep the file's.
struct RopeOverrides {
  // Also drops the file's factors for each pair and its attention factor, which belong to its own scaling.
  std::optional<std::string> scaling{};
  std::optional<double> frequency_base{};
  std::optional<double> factor{};
  std::optional<std::int64_t> original_context{};
  bool any() const { return scaling || frequency_base || factor || original_context; }
};

// The settings with the overrides in force. A factor without a scaling, over a file that has none, means linear.
// Errors: invalid_argument (a scaling that is unknown or needs factors of a file, a number out of range), naming the
// setting.
Result<RopeSettings> apply_overrides(RopeSettings settings, const RopeOverrides& overrides);

// `factors` [dims / 2], all positive, divide the frequencies unless the settings say otherwise; empty: those of the
// settings, if there are any.
ops::RopeSpec make_rope(const RopeSettings& settings, std::span<const float> factors = {});

}  // namespace adze::model
