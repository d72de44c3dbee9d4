// Q3_K: 256 values in 16 groups of 16, value = d * (s - 32) * (q - 4) with a 6-bit s per group, q in 0..7.
// 110 bytes, 3.4375 bits per value.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q3_K {
  static constexpr int kElements = 256;
  std::uint8_t hmask[32];  // bit i / 32 of byte i % 32: bit 2 of q of value i
  std::uint8_t qs[64];  // low two bits: half h, byte 32 h + i: values 128 h + i, + 32, + 64, + 96 from the low bits up
  std::uint8_t scales[12];  // low nibbles of s of groups g and g + 8 in byte g; byte 8 + k: top two bits of groups k,
                            // k + 4, k + 8, k + 12 from the low bits up
  std::uint16_t d;          // f16
};
static_assert(sizeof(Q3_K) == 110);

// s of a group, 0..63.
inline int q3_k_scale(const std::uint8_t* packed, int group) {
  const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
  return low | (((packed[8 + group % 4] >> (2 * (group / 4))) & 3) << 4);
}

inline void dequantise(const Q3_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(q3_k_scale(block.scales, group) - 32);
    const std::uint8_t* low = block.qs + 32 * (group / 8) + 16 * (group % 2);
    const std::uint8_t* high = block.hmask + 16 * (group % 2);
    const int low_shift = 2 * (group % 8 / 2);
    const int high_shift = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int q = ((low[i] >> low_shift) & 3) | (((high[i] >> high_shift) & 1) << 2);
      out[16 * group + i] = scale * static_cast<float>(q - 4);
    }
  }
}

// From the f16 scale and the scales s of all groups, 0..63: takes the levels once more, against the scales as stored (a
// group whose stored scale is 0 keeps those given), and packs.
inline void store(const float* in, std::uint16_t d, const std::uint8_t* group_scales, std::uint8_t* levels,
                  Q3_K& block) {
  block = {};
  block.d = d;
  for (int group = 0; group < 16; ++group) {
    const int s = group_scales[group];
    std::uint8_t& low = block.scales[group % 8];
    std::uint8_t& high = block.scales[8 + group % 4];
    low = static_cast<std::uint8_t>(low | ((s & 15) << (group < 8 ? 0 : 4)));
    high = static_cast<std::uint8_t>(high | ((s >> 4) << (2 * (group / 4))));
    const float scale = f16_to_f32(d) * static_cast<float>(s - 32);
    if (scale == 0.0f) continue;
    for (int i = 16 * group; i < 16 * (group + 1); ++i) {
      levels[i] = static_cast<std::uint8_t>(std::clamp(nearest_int(in[i] / scale), -4, 3) + 4);
    }
  }
  for (int i = 0; i < 256; ++i) {
    std::uint8_t& low = block.qs[32 * (i / 128) + i % 32];
    std::uint8_t& high = block.hmask[i % 32];
    low = static_cast<std::uint8_t>(low | ((levels[i] & 3) << (2 * (i % 128 / 32))));
    high = static_cast<std::uint8_t>(high | ((levels[i] >> 2) << (i / 32)));
  }
}

inline void quantise(const float* in, Q3_K& block) {
  std::uint8_t levels[256];
  float scales[16];
  float largest = 0.0f;  // by magnitude, with its sign
  for (int group = 0; group < 16; ++group) {
    scales[group] = fit_symmetric_by_descent(in + 16 * group, 16, 4, levels + 16 * group);
    if (std::fabs(scales[group]) > std::fabs(largest)) largest = scales[group];
  }
  std::uint8_t group_scales[16] = {};
  std::uint16_t d = 0;
  if (largest != 0.0f) {
    const float inverse = -32.0f / largest;
    d = f32_to_f16(1.0f / inverse);
    for (int group = 0; group < 16; ++group) {
      const auto wrapped = static_cast<std::int8_t>(nearest_int(inverse * scales[group]));
      group_scales[group] = static_cast<std::uint8_t>(std::clamp<int>(wrapped, -32, 31) + 32);
    }
  }
  store(in, d, group_scales, levels, block);
}

inline void quantise(const float* in, const Importance& importance, Q3_K& block) {
  std::uint8_t levels[256];
  float scales[16];
  float group_weights[16] = {};
  const float spread = 2.0f * sum_of_squares(in, 256) / 256.0f;
  for (int group = 0; group < 16; ++group) {
    float weights[16];
    weigh(in + 16 * group, importance.columns + 16 * group, 16, spread, weights);
    for (const float w : weights) group_weights[group] += w;
    scales[group] = fit_symmetric_by_scan(in + 16 * group, weights, 16, 4, levels + 16 * group);
  }
  std::uint8_t group_scales[16];
  const float d = fit_symmetric_by_scan(scales, group_weights, 16, 32, group_scales);
  store(in, f32_to_f16(d), group_scales, levels, block);
}

}  // namespace adze::tensor::blocks
