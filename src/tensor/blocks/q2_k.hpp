// Q2_K: 256 values in 16 groups of 16, value = d * s * q - dmin * m with 4-bit s and m per group, q in 0..3.
// 84 bytes, 2.625 bits per value.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q2_K {
  static constexpr int kElements = 256;
  std::uint8_t scales[16];  // group g: s in the low nibble, m in the high one
  std::uint8_t qs[64];      // half h, byte 32 h + i: values 128 h + i, + 32, + 64, + 96 from the low bits up
  std::uint16_t d;          // f16
  std::uint16_t dmin;       // f16
};
static_assert(sizeof(Q2_K) == 84);

inline void dequantise(const Q2_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group] & 15);
    const float minimum = dmin * static_cast<float>(block.scales[group] >> 4);
    const std::uint8_t* qs = block.qs + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group % 8 / 2);
    for (int i = 0; i < 16; ++i) out[16 * group + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - minimum;
  }
}

// From the f16 factors and the 4-bit s | m << 4 of all groups: takes the levels once more, against the scales as stored
// (a group whose stored scale is 0 keeps those given), and packs.
inline void store(const float* in, std::uint16_t d, std::uint16_t dmin, const std::uint8_t* group_scales,
                  std::uint8_t* levels, Q2_K& block) {
  block.d = d;
  block.dmin = dmin;
  for (int group = 0; group < 16; ++group) {
    block.scales[group] = group_scales[group];
    const float scale = f16_to_f32(d) * static_cast<float>(group_scales[group] & 15);
    if (scale == 0.0f) continue;
    const float minimum = f16_to_f32(dmin) * static_cast<float>(group_scales[group] >> 4);
    for (int i = 16 * group; i < 16 * (group + 1); ++i) {
      levels[i] = static_cast<std::uint8_t>(std::clamp(nearest_int((in[i] + minimum) / scale), 0, 3));
    }
  }
  for (int byte = 0; byte < 64; ++byte) {
    const std::uint8_t* q = levels + 128 * (byte / 32) + byte % 32;
    block.qs[byte] = static_cast<std::uint8_t>(q[0] | (q[32] << 2) | (q[64] << 4) | (q[96] << 6));
  }
}

inline void quantise(const float* in, Q2_K& block) {
  constexpr AffineSearch kSearch{
      .top_level = 3, .first_offset = -0.5f, .step = 0.1f, .candidates = 16, .absolute_error = true};
  std::uint8_t levels[256];
  AffineFit fits[16];
  float max_scale = 0.0f;
  float max_minimum = 0.0f;
  for (int group = 0; group < 16; ++group) {
    float weights[16];
    for (int i = 0; i < 16; ++i) weights[i] = std::fabs(in[16 * group + i]);
    fits[group] = fit_affine(in + 16 * group, weights, 16, kSearch, levels + 16 * group);
    max_scale = std::max(max_scale, fits[group].scale);
    max_minimum = std::max(max_minimum, fits[group].minimum);
  }
  const float inverse_scale = max_scale > 0.0f ? 15.0f / max_scale : 0.0f;
  const float inverse_minimum = max_minimum > 0.0f ? 15.0f / max_minimum : 0.0f;
  std::uint8_t group_scales[16];
  for (int group = 0; group < 16; ++group) {
    const int s = nearest_int(inverse_scale * fits[group].scale);
    const int m = nearest_int(inverse_minimum * fits[group].minimum);
    group_scales[group] = static_cast<std::uint8_t>(s | (m << 4));
  }
  store(in, f32_to_f16(max_scale / 15.0f), f32_to_f16(max_minimum / 15.0f), group_scales, levels, block);
}

inline void quantise(const float* in, const Importance& importance, Q2_K& block) {
  std::uint8_t levels[256];
  float scales[16];
  float minima[16];
  float group_weights[16] = {};
  const float spread = sum_of_squares(in, 256) / 256.0f;
  for (int group = 0; group < 16; ++group) {
    float weights[16];
    weigh(in + 16 * group, importance.columns + 16 * group, 16, spread, weights);
    for (const float w : weights) group_weights[group] += w;
    const AffineFit fit = fit_affine(in + 16 * group, weights, 16, weighted_search(3), levels + 16 * group);
    scales[group] = fit.scale;
    minima[group] = fit.minimum;
  }
  std::uint8_t group_scales[16];
  std::uint8_t group_minima[16];
  const float d = fit_unsigned(scales, group_weights, 16, 15, group_scales);
  const float dmin = fit_unsigned(minima, group_weights, 16, 15, group_minima);
  for (int group = 0; group < 16; ++group) {
    group_scales[group] = static_cast<std::uint8_t>(group_scales[group] | (group_minima[group] << 4));
  }
  store(in, f32_to_f16(d), f32_to_f16(dmin), group_scales, levels, block);
}

}  // namespace adze::tensor::blocks
