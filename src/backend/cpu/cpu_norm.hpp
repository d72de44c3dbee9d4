// A norm of a row or of heads, as a NormSpec tells.
#pragma once

#include <algorithm>

#include "backend/cpu/cpu_matmul.hpp"

namespace adze::cpu {

// Over each group of the weight's size in turn, or over the whole width without a weight. `out` may be `in`.
inline void norm_row(const KernelTable& table, const ops::NormSpec& norm, const float* in, int width, float* out) {
  if (norm.kind == ops::NormSpec::Kind::none) {
    if (out != in) std::copy_n(in, width, out);
    return;
  }
  const int group = norm.weight == nullptr ? width : static_cast<int>(norm.weight->columns());
  const auto kernel = norm.kind == ops::NormSpec::Kind::rms ? table.rms_norm : table.layer_norm;
  for (int first = 0; first < width; first += group) {
    kernel(in + first, float_data(norm.weight), norm.one_plus, norm.epsilon, group, out + first);
  }
}

}  // namespace adze::cpu
