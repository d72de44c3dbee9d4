// A bound matrix product as its kernel wants it.
#pragma once

#include "backend/cpu/cpu_schedule.hpp"
#include "backend/cpu/cpu_scratch.hpp"

namespace adze::cpu {

inline const float* float_data(ops::WeightRef weight) {
  return weight == nullptr ? nullptr : reinterpret_cast<const float*>(weight->bytes.data());
}

// `rows` rows of `in`, in the form that the kernel reads, times all rows of the weight; `panel` is the caller's own.
inline MatmulArgs matmul_args(const BoundMatmul& m, const ActivationBuffer& in, int rows, float* out,
                              std::size_t ld_out, bool accumulate, std::byte* panel) {
  const tensor::DTypeInfo& type = tensor::dtype_info(m.weight->type);
  MatmulArgs a{};
  a.weights = m.weight->bytes.data();
  a.row_stride = m.weight->row_stride();
  a.rows = static_cast<int>(m.weight->rows());
  a.k = static_cast<int>(m.weight->columns());
  a.bias = float_data(m.bias);
  a.quantised = m.kernel->activation_block == 256 ? in.int8_256 : in.int8_32;
  a.floats = in.floats;
  a.ld_floats = in.stride;
  a.tokens = rows;
  a.out = out;
  a.ld_out = ld_out;
  a.accumulate = accumulate;
  a.dequantise = type.dequantise;
  a.block_elements = static_cast<int>(type.block_elements);
  a.block_bytes = static_cast<int>(type.block_bytes);
  a.panel = panel;
  return a;
}

}  // namespace adze::cpu
