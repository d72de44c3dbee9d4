// MXFP4 (OCP microscaling): 32 FP4 values (E2M1) under one power-of-two scale (E8M0). 17 bytes, 4.25 bits per value.
// The table holds twice the FP4 values, so the scale is 2^(e - 128).
#pragma once

#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct MXFP4 {
  static constexpr int kElements = 32;
  std::uint8_t e;
  std::uint8_t qs[16];  // byte i: value i in the low nibble, value i + 16 in the high one
};
static_assert(sizeof(MXFP4) == 17);

inline constexpr std::int8_t kMxfp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128) for every e, 255 included: e = 0 and 1 are subnormal.
inline float mxfp4_half_scale(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<std::uint32_t>(e - 1) << 23);
}

inline void dequantise(const MXFP4& block, float* out) {
  const float d = mxfp4_half_scale(block.e);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kMxfp4Doubled[block.qs[i] & 15]);
    out[i + 16] = d * static_cast<float>(kMxfp4Doubled[block.qs[i] >> 4]);
  }
}

// The block of 32 values that others (OpenAI's checkpoints, MLX) store as a scale and 16 bytes of neighbours: byte i
// has value 2i in its low nibble, value 2i + 1 in the high one.
inline MXFP4 mxfp4_from_neighbours(std::uint8_t e, const std::byte* pairs) {
  MXFP4 block{.e = e, .qs = {}};
  const auto at = [&](int i) { return std::to_integer<unsigned>(pairs[i]); };
  for (int i = 0; i < 8; ++i) {
    const unsigned low = at(i), high = at(i + 8);
    block.qs[2 * i] = static_cast<std::uint8_t>((low & 15u) | (high & 15u) << 4);
    block.qs[2 * i + 1] = static_cast<std::uint8_t>(low >> 4 | (high & 0xf0u));
  }
  return block;
}

inline void quantise(const float* in, MXFP4& block) {
  // The largest FP4 value is 6 = 1.5 * 2^2: the scale is the power of two that leaves the largest magnitude below 8.
  // float32 log2 on purpose: just below a power of two it rounds up, and so does the reference.
  const float largest = std::fabs(signed_extreme<32>(in));
  const float exponent = largest > 0.0f ? std::floor(std::log2(largest)) - 2.0f + 127.0f : 0.0f;
  block.e = static_cast<std::uint8_t>(std::clamp(exponent, 0.0f, 254.0f));
  const float d = mxfp4_half_scale(block.e);
  const auto level = [&](int i) {
    int best = 0;
    float best_error = std::fabs(in[i]);
    for (int q = 1; q < 16; ++q) {
      const float error = std::fabs(static_cast<float>(kMxfp4Doubled[q]) * d - in[i]);
      if (error < best_error) {
        best = q;
        best_error = error;
      }
    }
    return best;
  };
  for (int i = 0; i < 16; ++i) block.qs[i] = pack_nibbles(level(i), level(i + 16));
}

}  // namespace adze::tensor::blocks
