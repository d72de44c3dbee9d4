// A weight whose bytes a test owns: float32 values, quantised to any type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/view.hpp"

namespace adze::test {

// Not copyable: the view points into the object.
class OwnedWeight {
 public:
  OwnedWeight(tensor::DType type, std::int64_t rows, std::int64_t columns, std::span<const float> values,
              std::string name = "weight")
      : name_(std::move(name)), bytes_(static_cast<std::size_t>(rows) * tensor::row_bytes(type, columns)) {
    tensor::quantise_row(type, values.data(), bytes_.data(), rows * columns);
    view_ = {name_, type, tensor::Shape{.dims = {rows, columns, 1, 1}, .rank = 2}, bytes_};
  }
  // F32 [rows, columns]
  OwnedWeight(std::int64_t rows, std::int64_t columns, const std::vector<float>& values)
      : OwnedWeight(tensor::DType::f32, rows, columns, std::span<const float>(values)) {}
  // F32 [columns]: norms and biases
  explicit OwnedWeight(const std::vector<float>& values)
      : OwnedWeight(1, static_cast<std::int64_t>(values.size()), values) {
    view_.shape = tensor::Shape{.dims = {static_cast<std::int64_t>(values.size()), 1, 1, 1}, .rank = 1};
  }
  OwnedWeight(const OwnedWeight&) = delete;
  OwnedWeight& operator=(const OwnedWeight&) = delete;

  const tensor::TensorView* ref() const { return &view_; }

 private:
  std::string name_;
  std::vector<std::byte> bytes_;
  tensor::TensorView view_;
};

// Rows first .. first + count of each of a weight's `slices` equal parts, as a weight whose parts lie apart.
class SlicedWeight {
 public:
  SlicedWeight(const tensor::TensorView& whole, std::int64_t slices, std::int64_t first, std::int64_t count)
      : view_(whole) {
    for (std::int64_t i = 0; i < slices; ++i) starts_.push_back(whole.row(i * (whole.rows() / slices) + first));
    view_.shape = {.dims = {slices, count, whole.columns(), 1}, .rank = 3};
    view_.bytes = {};
    view_.slices = starts_;
  }
  SlicedWeight(const SlicedWeight&) = delete;
  SlicedWeight& operator=(const SlicedWeight&) = delete;

  const tensor::TensorView* ref() const { return &view_; }

 private:
  std::vector<const std::byte*> starts_;
  tensor::TensorView view_;
};

}  // namespace adze::test
