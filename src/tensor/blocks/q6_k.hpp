// Q6_K: 256 values in 16 groups of 16, value = d * s * (q - 32) with a signed 8-bit s per group, q in 0..63.
// 210 bytes, 6.5625 bits per value.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct Q6_K {
  static constexpr int kElements = 256;
  std::uint8_t ql[128];  // low four bits: half h, byte 64 h + i, i < 64: value 128 h + i low nibble, + 64 high nibble
  std::uint8_t qh[64];   // top two bits: half h, byte 32 h + i: values 128 h + i, + 32, + 64, + 96 from the low bits up
  std::int8_t scales[16];  // s per group
  std::uint16_t d;         // f16
};
static_assert(sizeof(Q6_K) == 210);

inline void dequantise(const Q6_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group]);
    const std::uint8_t* low = block.ql + 64 * (group / 8) + 16 * (group % 4);
    const std::uint8_t* high = block.qh + 32 * (group / 8) + 16 * (group % 2);
    const int low_shift = 4 * (group % 8 / 4);
    const int high_shift = 2 * (group % 8 / 2);
    for (int i = 0; i < 16; ++i) {
      const int q = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
      out[16 * group + i] = scale * static_cast<float>(q - 32);
    }
  }
}

// Errors are weighted by `weights` [256].
inline void quantise_weighted(const float* in, const float* weights, Q6_K& block) {
  std::uint8_t levels[256];
  float scales[16];
  float largest = 0.0f;  // by magnitude, with its sign
  for (int group = 0; group < 16; ++group) {
    scales[group] = fit_symmetric_by_scan(in + 16 * group, weights + 16 * group, 16, 32, levels + 16 * group);
    if (std::fabs(scales[group]) > std::fabs(largest)) largest = scales[group];
  }
  block = {};
  if (std::fabs(largest) < kZeroGroup) return;  // all bytes zero, although q = 0 would mean -32: d is 0

  const float inverse = -128.0f / largest;
  block.d = f32_to_f16(1.0f / inverse);
  for (int group = 0; group < 16; ++group) {
    block.scales[group] = static_cast<std::int8_t>(std::min(127, nearest_int(inverse * scales[group])));
    // Levels once more, against the scales as stored; a group whose stored scale is 0 keeps those of its own fit.
    const float d = f16_to_f32(block.d) * static_cast<float>(block.scales[group]);
    if (d == 0.0f) continue;
    for (int i = 16 * group; i < 16 * (group + 1); ++i) {
      levels[i] = static_cast<std::uint8_t>(std::clamp(nearest_int(in[i] / d), -32, 31) + 32);
    }
  }
  for (int i = 0; i < 256; ++i) {
    std::uint8_t& low = block.ql[64 * (i / 128) + i % 64];
    std::uint8_t& high = block.qh[32 * (i / 128) + i % 32];
    low = static_cast<std::uint8_t>(low | ((levels[i] & 15) << (4 * (i % 128 / 64))));
    high = static_cast<std::uint8_t>(high | ((levels[i] >> 4) << (2 * (i % 128 / 32))));
  }
}

inline void quantise(const float* in, Q6_K& block) {
  float weights[256];
  weigh_by_square(in, 256, weights);
  quantise_weighted(in, weights, block);
}

// The importance alone is the weight: at six bits, small values need no help.
inline void quantise(const float* in, const Importance& importance, Q6_K& block) {
  quantise_weighted(in, importance.columns, block);
}

}  // namespace adze::tensor::blocks
