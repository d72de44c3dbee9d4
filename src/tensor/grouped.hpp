// MLX's weights: codes in one tensor, scales and biases in others (why not as blocks: docs/design/0010). Code i of a
// row is the `code_bits` bits from bit i * code_bits on of the row's bytes, counted from the low bit of each byte; the
// 32-bit words of the file are only containers. Groups of 32, 64 or 128 values of a row share
//
//   mlx_2 .. mlx_8   value = scale * code + bias, both float32, float16 or bfloat16
//   mlx_mxfp4        value = 2^(scale - 127) * E2M1(code), in groups of 32
//
// computed in float32: scale * code is exact for 16-bit scales, and rounded once, as MLX does it, for float32 ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace adze::tensor {

// Code `i` of a row of codes of `bits` bits.
unsigned code_at(const std::byte* row, int bits, std::int64_t i);

// One row; `groups` is at its scales, columns a multiple of the group.
void dequantise_codes(DType type, const std::byte* row, const GroupScales& groups, float* out, std::int64_t columns);

}  // namespace adze::tensor
