// The 16 values that a nibble of IQ4_NL and IQ4_XS stands for, and the search for the scale that suits them.
#pragma once

#include "tensor/blocks/fit.hpp"
#include "tensor/blocks/importance.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

inline constexpr std::int8_t kIq4Codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

// Index of the nearest codebook value; the larger one when two are equally near.
inline int iq4_nearest(float value) {
  int index = 0;
  while (index < 15) {
    const float down = value - static_cast<float>(kIq4Codebook[index]);
    const float up = static_cast<float>(kIq4Codebook[index + 1]) - value;
    if (down < up) break;
    ++index;
  }
  return index;
}

// The scale for 32 values with the smallest squared error under `weights`, among 16 candidates around the one that maps
// the largest magnitude to -127; 0 for a group of zeros. May be negative.
inline float iq4_fit_scale(const float* in, const float* weights) {
  const float extreme = signed_extreme<32>(in);
  if (std::fabs(extreme) < kZeroGroup) return 0.0f;
  struct Sums {
    float qx = 0.0f;
    float qq = 0.0f;
  };
  const auto measure = [&](float inverse) {
    Sums sums;
    for (int i = 0; i < 32; ++i) {
      const auto q = static_cast<float>(kIq4Codebook[iq4_nearest(inverse * in[i])]);
      const float w = weights[i];
      sums.qx += w * q * in[i];
      sums.qq += w * q * q;
    }
    return sums;
  };
  Sums sums = measure(1.0f / (-extreme / static_cast<float>(kIq4Codebook[0])));
  float scale = sums.qq > 0.0f ? sums.qx / sums.qq : 0.0f;
  float best = scale * sums.qx;
  for (int step = -7; step <= 7; ++step) {
    sums = measure(static_cast<float>(step + kIq4Codebook[0]) / extreme);
    if (sums.qq > 0.0f && sums.qx * sums.qx > best * sums.qq) {
      scale = sums.qx / sums.qq;
      best = scale * sums.qx;
    }
  }
  return scale;
}

}  // namespace adze::tensor::blocks
