// Q5_0: 32 values, value = d * (q - 16), q in 0..31. 22 bytes, 5.5 bits per value.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q5_0 {
  static constexpr int kElements = 32;
  std::uint16_t d;      // f16
  std::uint8_t qh[4];   // bit i, counted from the low bit of byte 0: bit 4 of value i
  std::uint8_t qs[16];  // byte i: low four bits of value i in the low nibble, of value i + 16 in the high one
};
static_assert(sizeof(Q5_0) == 22);

inline void dequantise(const Q5_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  const auto high_bit = [&](int i) { return ((block.qh[i / 8] >> (i % 8)) & 1) << 4; };
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((block.qs[i] & 15) | high_bit(i)) - 16);
    out[i + 16] = d * static_cast<float>(((block.qs[i] >> 4) | high_bit(i + 16)) - 16);
  }
}

// As Q4_0: the value with the largest magnitude maps to level 0.
inline void quantise(const float* in, Q5_0& block) {
  const float d = signed_extreme<32>(in) / -16.0f;
  const float inverse = inverse_or_zero(d);
  block.d = f32_to_f16(d);
  std::uint8_t levels[32];
  for (int i = 0; i < 32; ++i) levels[i] = truncate_level(in[i] * inverse + 16.5f, 31);
  pack_five_bits(levels, block.qs, block.qh);
}

inline void quantise(const float* in, const Importance& importance, Q5_0& block) {
  float weights[32];
  std::uint8_t levels[32];
  weigh(in, importance.columns, 32, importance.row_mean_square, weights);
  block.d = f32_to_f16(fit_symmetric_by_scan(in, weights, 32, 16, levels));
  pack_five_bits(levels, block.qs, block.qh);
}

}  // namespace adze::tensor::blocks
