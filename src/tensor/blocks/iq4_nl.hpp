// IQ4_NL: 32 values, value = d * codebook[q], q in 0..15. 18 bytes, 4.5 bits per value.
#pragma once

#include "tensor/blocks/iq4_codebook.hpp"

namespace adze::tensor::blocks {

struct IQ4_NL {
  static constexpr int kElements = 32;
  std::uint16_t d;      // f16
  std::uint8_t qs[16];  // byte i: value i in the low nibble, value i + 16 in the high one
};
static_assert(sizeof(IQ4_NL) == 18);

inline void dequantise(const IQ4_NL& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4Codebook[block.qs[i] & 15]);
    out[i + 16] = d * static_cast<float>(kIq4Codebook[block.qs[i] >> 4]);
  }
}

// The file quantiser's search of 16 candidates (ggml also has a quick one with a single candidate, for activations).
// Errors are weighted by `weights` [32].
inline void quantise_weighted(const float* in, const float* weights, IQ4_NL& block) {
  const float d = iq4_fit_scale(in, weights);
  const float inverse = inverse_or_zero(d);
  block.d = f32_to_f16(d);
  const auto level = [&](int i) { return iq4_nearest(inverse * in[i]); };
  for (int i = 0; i < 16; ++i) block.qs[i] = pack_nibbles(level(i), level(i + 16));
}

inline void quantise(const float* in, IQ4_NL& block) {
  float weights[32];
  weigh_by_square(in, 32, weights);
  quantise_weighted(in, weights, block);
}

inline void quantise(const float* in, const Importance& importance, IQ4_NL& block) {
  float weights[32];
  weigh(in, importance.columns, 32, sum_of_squares(in, 32) * (2.0f / 32.0f), weights);
  quantise_weighted(in, weights, block);
}

}  // namespace adze::tensor::blocks
