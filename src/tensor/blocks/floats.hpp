// F32, F16, BF16: blocks of one value, so that every weight type has the same shape of trait.
#pragma once

#include <cstdint>

#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {

struct F32 {
  static constexpr int kElements = 1;
  float value;
};
static_assert(sizeof(F32) == 4);

struct F16 {
  static constexpr int kElements = 1;
  std::uint16_t bits;
};
static_assert(sizeof(F16) == 2);

struct BF16 {
  static constexpr int kElements = 1;
  std::uint16_t bits;
};
static_assert(sizeof(BF16) == 2);

inline void dequantise(const F32& block, float* out) { *out = block.value; }
inline void dequantise(const F16& block, float* out) { *out = f16_to_f32(block.bits); }
inline void dequantise(const BF16& block, float* out) { *out = bf16_to_f32(block.bits); }

inline void quantise(const float* in, F32& block) { block.value = *in; }
inline void quantise(const float* in, F16& block) { block.bits = f32_to_f16(*in); }
inline void quantise(const float* in, BF16& block) { block.bits = f32_to_bf16(*in); }

}  // namespace adze::tensor::blocks
