// A bound matrix product as its kernel wants it.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cpu/cpu_schedule.hpp"
#include "backend/cpu/cpu_scratch.hpp"
#include "backend/cpu/thread_team.hpp"

namespace adze::cpu {

inline const float* float_data(ops::WeightRef weight) {
  return weight == nullptr ? nullptr : reinterpret_cast<const float*>(weight->bytes.data());
}

// The packed form of one of the weight's slices; null where the product reads the file's.
inline const std::byte* packed_slice(const BoundMatmul& m, std::int64_t index) {
  return m.packed == nullptr || !m.tuning->packed ? nullptr : m.packed->slice(index);
}

// `rows` rows of `in`, in the form that the kernel reads, times all rows of the weight; `panel` is the caller's own.
inline MatmulArgs matmul_args(const BoundMatmul& m, const ActivationBuffer& in, int rows, float* out,
                              std::size_t ld_out, bool accumulate, std::byte* panel) {
  const tensor::DTypeInfo& type = tensor::dtype_info(m.weight->type);
  MatmulArgs a{};
  a.weights = m.weight->bytes.data();
  a.row_stride = m.weight->row_stride();
  a.packed = packed_slice(m, 0);
  a.groups = m.weight->groups;
  a.scale_stride = m.weight->scale_stride();
  a.rows = static_cast<int>(m.weight->rows());
  a.k = static_cast<int>(m.weight->columns());
  a.bias = float_data(m.bias);
  a.quantised = m.kernel->activation_block == 256 ? in.int8_256 : in.int8_32;
  a.floats = in.floats;
  a.ld_floats = in.stride;
  a.tokens = rows;
  a.max_tile = m.tuning->max_tile;
  a.ahead = m.tuning->ahead;
  a.out = out;
  a.ld_out = ld_out;
  a.accumulate = accumulate;
  a.dequantise = type.dequantise;
  a.block_elements = static_cast<int>(type.block_elements);
  a.block_bytes = static_cast<int>(type.block_bytes);
  a.panel = panel;
  return a;
}

// Columns [begin, end) of a row.
struct Columns {
  int begin, end;
  int count() const { return end - begin; }
};

// Of the output rows of groups [share.begin, share.end).
inline Columns columns_of(const BoundMatmul& m, const Share& share) {
  const int all = static_cast<int>(m.weight->rows());
  return {std::min(share.begin * kGroupRows, all), std::min(share.end * kGroupRows, all)};
}

// A member's share of products that read the same rows and whose results stand side by side in each row of `out`; the
// columns that it is.
inline Columns run_side_by_side(std::span<const BoundMatmul> products, const ActivationBuffer& in, int rows, float* out,
                                std::size_t ld_out, std::byte* panel, int member, int members) {
  int total = 0;
  for (const BoundMatmul& m : products) total += m.groups();
  const Share share = share_of(total, member, members);
  int first_group = 0, first_column = 0;
  Columns done{0, 0};
  for (const BoundMatmul& m : products) {
    const int begin = std::max(share.begin - first_group, 0), end = std::min(share.end - first_group, m.groups());
    if (begin < end) {
      m.kernel->run(matmul_args(m, in, rows, out + first_column, ld_out, false, panel), begin, end);
      const Columns part = columns_of(m, {begin, end});
      if (done.count() == 0) done.begin = first_column + part.begin;
      done.end = first_column + part.end;
    }
    first_group += m.groups();
    first_column += static_cast<int>(m.weight->rows());
  }
  return done;
}

}  // namespace adze::cpu
