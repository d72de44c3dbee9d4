// IQ4_XS: 256 values in eight groups of 32, value = d * (s - 32) * codebook[q] with a 6-bit s per group, q in 0..15.
// 136 bytes, 4.25 bits per value.
#pragma once

#include "tensor/blocks/iq4_codebook.hpp"

namespace adze::tensor::blocks {

struct IQ4_XS {
  static constexpr int kElements = 256;
  std::uint16_t d;           // f16
  std::uint16_t scales_h;    // bits 2 g, 2 g + 1: top two bits of s of group g
  std::uint8_t scales_l[4];  // byte g / 2: low four bits of s, even groups in the low nibble
  std::uint8_t qs[128];      // byte 16 g + i: value 32 g + i in the low nibble, 32 g + i + 16 in the high one
};
static_assert(sizeof(IQ4_XS) == 136);

inline void dequantise(const IQ4_XS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 8; ++group) {
    const int low = (block.scales_l[group / 2] >> (4 * (group % 2))) & 15;
    const int high = (block.scales_h >> (2 * group)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    for (int i = 0; i < 16; ++i) {
      const int packed = block.qs[16 * group + i];
      out[32 * group + i] = scale * static_cast<float>(kIq4Codebook[packed & 15]);
      out[32 * group + i + 16] = scale * static_cast<float>(kIq4Codebook[packed >> 4]);
    }
  }
}

// Errors are weighted by `weights` [256].
inline void quantise_weighted(const float* in, const float* weights, IQ4_XS& block) {
  float scales[8];
  float largest = 0.0f;  // by magnitude, with its sign
  for (int group = 0; group < 8; ++group) {
    scales[group] = iq4_fit_scale(in + 32 * group, weights + 32 * group);
    if (std::fabs(scales[group]) > std::fabs(largest)) largest = scales[group];
  }
  const float d = -largest / 32.0f;
  const float inverse = inverse_or_zero(d);
  block = {};
  block.d = f32_to_f16(d);
  for (int group = 0; group < 8; ++group) {
    const int s = std::clamp(nearest_int(inverse * scales[group]), -32, 31);
    std::uint8_t& low = block.scales_l[group / 2];
    low = static_cast<std::uint8_t>(low | (((s + 32) & 15) << (4 * (group % 2))));
    block.scales_h = static_cast<std::uint16_t>(block.scales_h | (((s + 32) >> 4) << (2 * group)));
    // Levels against the float32 scale, not against the f16 one that is stored.
    const float group_inverse = inverse_or_zero(d * static_cast<float>(s));
    const auto level = [&](int i) { return iq4_nearest(group_inverse * in[32 * group + i]); };
    for (int i = 0; i < 16; ++i) block.qs[16 * group + i] = pack_nibbles(level(i), level(i + 16));
  }
}

inline void quantise(const float* in, IQ4_XS& block) {
  float weights[256];
  weigh_by_square(in, 256, weights);
  quantise_weighted(in, weights, block);
}

inline void quantise(const float* in, const Importance& importance, IQ4_XS& block) {
  float weights[256];
  weigh(in, importance.columns, 256, sum_of_squares(in, 256) * (2.0f / 256.0f), weights);
  quantise_weighted(in, weights, block);
}

}  // namespace adze::tensor::blocks
