// Q4_K: 256 values in eight groups of 32, value = d * s * q - dmin * m with 6-bit s and m per group, q in 0..15.
// 144 bytes, 4.5 bits per value.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/k_scales.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q4_K {
  static constexpr int kElements = 256;
  std::uint16_t d;          // f16
  std::uint16_t dmin;       // f16
  std::uint8_t scales[12];  // k_scales.hpp
  std::uint8_t qs[128];     // quarter h, byte 32 h + i: value 64 h + i in the low nibble, 64 h + i + 32 in the high one
};
static_assert(sizeof(Q4_K) == 144);

inline void dequantise(const Q4_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum packed = unpack_k_scale(block.scales, group);
    const float scale = d * static_cast<float>(packed.scale);
    const float minimum = dmin * static_cast<float>(packed.minimum);
    const std::uint8_t* qs = block.qs + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) out[32 * group + i] = scale * static_cast<float>((qs[i] >> shift) & 15) - minimum;
  }
}

inline void pack(const AffineSuperBlock& fit, Q4_K& block) {
  block.d = fit.d;
  block.dmin = fit.dmin;
  std::copy(fit.scales.begin(), fit.scales.end(), block.scales);
  for (int byte = 0; byte < 128; ++byte) {
    const std::uint8_t* q = fit.levels.data() + 64 * (byte / 32) + byte % 32;
    block.qs[byte] = pack_nibbles(q[0], q[32]);
  }
}

inline void quantise(const float* in, Q4_K& block) {
  constexpr AffineSearch kSearch{
      .top_level = 15, .first_offset = -1.0f, .step = 0.1f, .candidates = 21, .absolute_error = false};
  pack(fit_affine_super_block(in, kSearch), block);
}

inline void quantise(const float* in, const Importance& importance, Q4_K& block) {
  pack(fit_affine_super_block(in, importance.columns, 15), block);
}

}  // namespace adze::tensor::blocks
