// The scale searches behind ggml's quantisers: given a group of values and a number of levels, find the scale (and
// minimum) with the smallest weighted error. Every sum runs in ascending order in float32, because the bytes that come
// out must be those of the reference. Pure functions.
//
// With an importance matrix the weight of a value x in column j is importance_j * sqrt(spread + x^2): importance_j is
// the mean square of what the column gets multiplied by, so that the search minimises the error of the product, and the
// spread (a mean square of the values around x) keeps small values from counting for nothing.
#pragma once

#include <array>
#include <cstdint>

namespace adze::tensor::blocks {

inline constexpr float kZeroGroup = 1e-15f;  // groups whose largest magnitude is below are stored as zeros

// value = scale * (level - half_range), levels 0 .. 2 * half_range - 1. Both write `count` levels and return the scale,
// which is negative when the largest magnitude is positive (it maps to level 0); 0 with all levels 0 for a zero group.

// Tries 19 scales around the obvious one.
float fit_symmetric_by_scan(const float* in, const float* weights, int count, int half_range, std::uint8_t* levels);
// Moves single levels while that lowers the error, weighted by the value's square, at most five rounds.
float fit_symmetric_by_descent(const float* in, int count, int half_range, std::uint8_t* levels);

// value = scale * level, levels 0 .. top_level, values >= 0: the scales of groups under a common factor. Tries nine
// scales, then moves single levels as above. 0 with all levels 0 where no value is above kZeroGroup.
float fit_unsigned(const float* in, const float* weights, int count, int top_level, std::uint8_t* levels);

// value = scale * level - minimum, levels 0 .. top_level, minimum >= 0.
struct AffineSearch {
  int top_level;
  float first_offset;  // candidate i has the inverse scale (top_level + first_offset + i * step) / (high - low),
  float step;          // each refined by least squares
  int candidates;
  bool absolute_error;  // judge by |error| instead of its square
};
// What all affine types use with an importance matrix.
constexpr AffineSearch weighted_search(int top_level) {
  return {.top_level = top_level, .first_offset = -0.9f, .step = 0.05f, .candidates = 37, .absolute_error = false};
}
struct AffineFit {
  float scale;
  float minimum;
};
inline constexpr int kMaxGroup = 32;
AffineFit fit_affine(const float* in, const float* weights, int count, const AffineSearch& search,
                     std::uint8_t* levels);

// 256 values in eight groups of 32, each with a 6-bit scale and a 6-bit minimum under two f16 factors (Q4_K, Q5_K).
struct AffineSuperBlock {
  std::uint16_t d;
  std::uint16_t dmin;
  std::array<std::uint8_t, 12> scales;  // as PackedScales (k_scales.hpp)
  std::array<std::uint8_t, 256> levels;
};
AffineSuperBlock fit_affine_super_block(const float* in, const AffineSearch& search);
AffineSuperBlock fit_affine_super_block(const float* in, const float* importance, int top_level);

// Weights of `count` values, as said at the top.
void weigh(const float* in, const float* importance, int count, float spread, float* weights);
// Weights without an importance matrix where a search asks for some: the value's square.
void weigh_by_square(const float* in, int count, float* weights);
float sum_of_squares(const float* in, std::int64_t count);

}  // namespace adze::tensor::blocks
