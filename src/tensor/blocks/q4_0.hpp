// Q4_0: 32 values, value = d * (q - 8), q in 0..15. 18 bytes, 4.5 bits per value.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q4_0 {
  static constexpr int kElements = 32;
  std::uint16_t d;      // f16
  std::uint8_t qs[16];  // byte i: value i in the low nibble, value i + 16 in the high one
};
static_assert(sizeof(Q4_0) == 18);

inline void dequantise(const Q4_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block.qs[i] >> 4) - 8);
  }
}

// The value with the largest magnitude maps to level 0, that is to -8, whatever its sign: d may be negative.
inline void quantise(const float* in, Q4_0& block) {
  const float d = signed_extreme<32>(in) / -8.0f;
  const float inverse = inverse_or_zero(d);
  block.d = f32_to_f16(d);
  std::uint8_t levels[32];
  for (int i = 0; i < 32; ++i) levels[i] = truncate_level(in[i] * inverse + 8.5f, 15);
  pack_four_bits(levels, block.qs);
}

inline void quantise(const float* in, const Importance& importance, Q4_0& block) {
  float weights[32];
  std::uint8_t levels[32];
  weigh(in, importance.columns, 32, importance.row_mean_square, weights);
  block.d = f32_to_f16(fit_symmetric_by_scan(in, weights, 32, 8, levels));
  pack_four_bits(levels, block.qs);
}

}  // namespace adze::tensor::blocks
