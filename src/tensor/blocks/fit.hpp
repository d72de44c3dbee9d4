// The scale searches behind ggml's K quantisers: given a group of values and a number of levels, find the scale (and
// minimum) with the smallest weighted error. Every sum runs in ascending order in float32, because the bytes that come
// out must be those of the reference. Pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace adze::tensor::blocks {

inline constexpr float kZeroGroup = 1e-15f;  // groups whose largest magnitude is below are stored as zeros

// value = scale * (level - half_range), levels 0 .. 2 * half_range - 1. Both write `count` levels and return the scale,
// which is negative when the largest magnitude is positive (it maps to level 0); 0 with all levels 0 for a zero group.

// Tries 19 scales around the obvious one, error weighted by the value's square (Q6_K).
float fit_symmetric_by_scan(const float* in, int count, int half_range, std::int8_t* levels);
// Moves single levels while that lowers the error, at most five rounds (Q3_K).
float fit_symmetric_by_descent(const float* in, int count, int half_range, std::int8_t* levels);

// value = scale * level - minimum, levels 0 .. top_level, minimum >= 0.
struct AffineSearch {
  int top_level;
  float first_offset;   // candidate i has the inverse scale (top_level + first_offset + i * 0.1) / (high - low),
  int candidates;       // each refined by least squares
  bool absolute_error;  // judge by |error| instead of its square
};
struct AffineFit {
  float scale;
  float minimum;
};
inline constexpr int kMaxAffineGroup = 32;
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

}  // namespace adze::tensor::blocks
