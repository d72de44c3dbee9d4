// Q5_1: 32 values, value = d * q + m, q in 0..31. 24 bytes, 6 bits per value.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q5_1 {
  static constexpr int kElements = 32;
  std::uint16_t d;      // f16
  std::uint16_t m;      // f16, the smallest value
  std::uint8_t qh[4];   // bit i, counted from the low bit of byte 0: bit 4 of value i
  std::uint8_t qs[16];  // byte i: low four bits of value i in the low nibble, of value i + 16 in the high one
};
static_assert(sizeof(Q5_1) == 24);

inline void dequantise(const Q5_1& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  const auto high_bit = [&](int i) { return ((block.qh[i / 8] >> (i % 8)) & 1) << 4; };
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 15) | high_bit(i)) + m;
    out[i + 16] = d * static_cast<float>((block.qs[i] >> 4) | high_bit(i + 16)) + m;
  }
}

inline void quantise(const float* in, Q5_1& block) {
  const Range range = value_range<32>(in);
  const float d = (range.high - range.low) / 31.0f;
  const float inverse = inverse_or_zero(d);
  block.d = f32_to_f16(d);
  block.m = f32_to_f16(range.low);
  std::uint8_t levels[32];
  for (int i = 0; i < 32; ++i) levels[i] = truncate_level((in[i] - range.low) * inverse + 0.5f, 31);
  pack_five_bits(levels, block.qs, block.qh);
}

// m is never above 0 here, also where all values are.
inline void quantise(const float* in, const Importance& importance, Q5_1& block) {
  float weights[32];
  std::uint8_t levels[32];
  weigh(in, importance.columns, 32, importance.row_mean_square, weights);
  const AffineFit fit = fit_affine(in, weights, 32, weighted_search(31), levels);
  block.d = f32_to_f16(fit.scale);
  block.m = f32_to_f16(-fit.minimum);
  pack_five_bits(levels, block.qs, block.qh);
}

}  // namespace adze::tensor::blocks
