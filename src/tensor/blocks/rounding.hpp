// What every block format shares: roundings that reproduce ggml's reference quantisers bit for bit.
//
// Blocks are used as they lie in a file, so the host must be little-endian. The functions of this folder are slow and
// exact on purpose: they define a format. Kernels read the structs and have unpackers of their own.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.hpp"

namespace adze::tensor::blocks {

static_assert(std::endian::native == std::endian::little, "block formats are read in place");

// Nearest integer, ties to even, by adding 1.5 * 2^23 and reading the mantissa. Beyond +-4194303 the result wraps,
// which ggml's does as well: a block whose scale vanished in f16 must come out with the same bytes.
inline int nearest_int(float value) {
  const float shifted = value + 12582912.0f;
  return static_cast<int>(std::bit_cast<std::uint32_t>(shifted) & 0x007fffffu) - 0x00400000;
}

// Truncates to 0..top; NaN becomes 0.
inline std::uint8_t truncate_level(float value, int top) {
  if (!(value > 0.0f)) return 0;
  if (value >= static_cast<float>(top)) return static_cast<std::uint8_t>(top);
  return static_cast<std::uint8_t>(value);
}

// 1 / scale, and 0 for a scale of 0.
inline float inverse_or_zero(float scale) { return scale != 0.0f ? 1.0f / scale : 0.0f; }

// The value with the largest magnitude, the first of equals; 0 for a block of zeros.
template <int N>
float signed_extreme(const float* in) {
  float extreme = 0.0f;
  for (int i = 0; i < N; ++i) {
    if (std::fabs(in[i]) > std::fabs(extreme)) extreme = in[i];
  }
  return extreme;
}

struct Range {
  float low;
  float high;
};

template <int N>
Range value_range(const float* in) {
  Range range{in[0], in[0]};
  for (int i = 1; i < N; ++i) {
    if (in[i] < range.low) range.low = in[i];
    if (in[i] > range.high) range.high = in[i];
  }
  return range;
}

// Two 4-bit levels in one byte.
inline std::uint8_t pack_nibbles(int low, int high) {
  return static_cast<std::uint8_t>((low & 15) | ((high & 15) << 4));
}

// The 32 levels of a block of the legacy types: low nibbles in qs (value i beside value i + 16), the fifth bits in qh.
inline void pack_four_bits(const std::uint8_t* levels, std::uint8_t* qs) {
  for (int i = 0; i < 16; ++i) qs[i] = pack_nibbles(levels[i], levels[i + 16]);
}
inline void pack_five_bits(const std::uint8_t* levels, std::uint8_t* qs, std::uint8_t* qh) {
  pack_four_bits(levels, qs);
  std::fill(qh, qh + 4, std::uint8_t{0});
  for (int i = 0; i < 32; ++i) qh[i / 8] = static_cast<std::uint8_t>(qh[i / 8] | ((levels[i] >> 4) << (i % 8)));
}

}  // namespace adze::tensor::blocks
