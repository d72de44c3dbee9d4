// Q8_0: 32 values, value = d * q, q in -128..127 (the quantiser makes -127..127). 34 bytes, 8.5 bits per value.
#pragma once

#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q8_0 {
  static constexpr int kElements = 32;
  std::uint16_t d;  // f16
  std::int8_t qs[32];
};
static_assert(sizeof(Q8_0) == 34);

inline void dequantise(const Q8_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

// Rounds halves away from zero, and with the float32 scale, not with the f16 one that is stored.
inline void quantise(const float* in, Q8_0& block) {
  const float d = std::fabs(signed_extreme<32>(in)) / 127.0f;
  const float inverse = inverse_or_zero(d);
  block.d = f32_to_f16(d);
  for (int i = 0; i < 32; ++i) {
    const float q = std::round(in[i] * inverse);
    block.qs[i] = q == q ? static_cast<std::int8_t>(std::clamp(q, -127.0f, 127.0f)) : std::int8_t{0};
  }
}

}  // namespace adze::tensor::blocks
