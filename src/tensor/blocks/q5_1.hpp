// Q5_1: 32 values, value = d * q + m, q in 0..31. 24 bytes, 6 bits per value.
#pragma once

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
  std::fill(std::begin(block.qh), std::end(block.qh), std::uint8_t{0});
  const auto level = [&](int i) {
    const std::uint8_t q = truncate_level((in[i] - range.low) * inverse + 0.5f, 31);
    block.qh[i / 8] = static_cast<std::uint8_t>(block.qh[i / 8] | ((q >> 4) << (i % 8)));
    return q;
  };
  for (int i = 0; i < 16; ++i) block.qs[i] = pack_nibbles(level(i), level(i + 16));
}

}  // namespace adze::tensor::blocks
