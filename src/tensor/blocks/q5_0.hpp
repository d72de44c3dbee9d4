// Q5_0: 32 values, value = d * (q - 16), q in 0..31. 22 bytes, 5.5 bits per value.
#pragma once

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
  std::fill(std::begin(block.qh), std::end(block.qh), std::uint8_t{0});
  const auto level = [&](int i) {
    const std::uint8_t q = truncate_level(in[i] * inverse + 16.5f, 31);
    block.qh[i / 8] = static_cast<std::uint8_t>(block.qh[i / 8] | ((q >> 4) << (i % 8)));
    return q;
  };
  for (int i = 0; i < 16; ++i) block.qs[i] = pack_nibbles(level(i), level(i + 16));
}

}  // namespace adze::tensor::blocks
