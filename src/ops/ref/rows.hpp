// The arrays of the reference steps: dense float32 [count, width], row-major, one row per token.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace adze::ops::ref {

struct Rows {
  int count = 0;
  int width = 0;
  std::vector<float> values;

  Rows() = default;
  Rows(int row_count, int row_width)
      : count(row_count),
        width(row_width),
        values(static_cast<std::size_t>(row_count) * static_cast<std::size_t>(row_width)) {}
  Rows(int row_count, int row_width, std::vector<float> row_values)
      : count(row_count), width(row_width), values(std::move(row_values)) {}

  std::span<float> operator[](int row) { return {values.data() + offset(row), static_cast<std::size_t>(width)}; }
  std::span<const float> operator[](int row) const {
    return {values.data() + offset(row), static_cast<std::size_t>(width)};
  }

 private:
  std::size_t offset(int row) const { return static_cast<std::size_t>(row) * static_cast<std::size_t>(width); }
};

}  // namespace adze::ops::ref
