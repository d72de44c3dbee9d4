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
// A tensor of per-pair factors in the file (rope_freqs.weight) divides the frequencies; it is how GGUF carries llama3.
// Everything is computed in double and rounded to float32 once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "ops/steps.hpp"

namespace adze::model {

enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn };
std::string_view rope_scaling_name(RopeScaling scaling);
// "none", "linear", "llama3", "yarn"; nothing for another word.
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
  int turned_pairs = -1;            // pairs from here on stay as they are; -1: all turn
  bool round_ramp = true;           // yarn: the ramp's ends outwards to whole pairs
  double attention_factor = 1.0;    // multiplies cos and sin, once more under yarn
  bool factors_are_scaling = true;  // the file's factors for each pair are a scaling, which another one replaces
  bool use_factors = true;          // divide by the factors that the file has for each pair, if it has any
};

// What a caller wants instead; unset fields keep the file's.
struct RopeOverrides {
  std::optional<std::string> scaling{};  // also drops the file's per-pair factors, which are its own scaling
  std::optional<double> frequency_base{};
  std::optional<double> frequency_scale{};  // 1 / factor
  std::optional<double> factor{};
  std::optional<std::int64_t> original_context{};
  bool any() const { return scaling || frequency_base || frequency_scale || factor || original_context; }
};

// The settings with the overrides in force. A factor without a scaling, over a file that has none, means linear.
// Errors: invalid_argument (an unknown scaling, a number out of range, two factors that disagree), naming the setting.
Result<RopeSettings> apply_overrides(RopeSettings settings, const RopeOverrides& overrides);

// `factors` [dims / 2], all positive, divide the frequencies unless the settings say otherwise; empty: none.
ops::RopeSpec make_rope(const RopeSettings& settings, std::span<const float> factors = {});

}  // namespace adze::model
