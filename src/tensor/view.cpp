#include "tensor/view.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/check.hpp"
#include "tensor/grouped.hpp"

namespace adze::tensor {

std::size_t TensorView::scale_stride() const {
  if (groups.size == 0) return 0;
  return static_cast<std::size_t>(columns() / groups.size) * scale_bytes(groups.type);
}

GroupScales TensorView::groups_from(std::int64_t r) const {
  GroupScales from = groups;
  const std::size_t skipped = static_cast<std::size_t>(r) * scale_stride();
  if (from.scales != nullptr) from.scales += skipped;
  if (from.biases != nullptr) from.biases += skipped;
  return from;
}

std::uint64_t size_bytes(DType type, const Shape& shape) {
  return TensorView{.name = {}, .type = type, .shape = shape, .bytes = {}}.size_bytes();
}

std::uint64_t TensorView::size_bytes() const {
  return static_cast<std::uint64_t>(rows()) * (row_stride() + scale_stride() * (groups.biases != nullptr ? 2 : 1));
}

TensorView rows_of(const TensorView& weight, std::int64_t first, std::int64_t count) {
  ADZE_CHECK(first >= 0 && count > 0 && first + count <= weight.rows(), "rows {} to {} of {}", first, first + count,
             weight.rows());
  ADZE_CHECK(weight.slices.empty(), "'{}' lies in slices", weight.name);
  const std::size_t stride = weight.row_stride();
  return {
      .name = weight.name,
      .type = weight.type,
      .shape = {.dims = {count, weight.columns(), 1, 1}, .rank = 2},
      .bytes = weight.bytes.subspan(static_cast<std::size_t>(first) * stride, static_cast<std::size_t>(count) * stride),
      .groups = weight.groups_from(first)};
}

std::shared_ptr<const TensorView> rows_of_each(const TensorView& weight, std::int64_t first, std::int64_t count) {
  const std::int64_t slices = weight.shape[0], rows = weight.rows() / slices;
  ADZE_CHECK(first >= 0 && count > 0 && first + count <= rows, "rows {} to {} of {}", first, first + count, rows);
  ADZE_CHECK(weight.groups.size == 0, "scales of '{}' lie in no slices", weight.name);
  struct Part {
    TensorView view;
    std::vector<const std::byte*> starts;
  };
  auto part = std::make_shared<Part>(Part{weight, {}});
  for (std::int64_t i = 0; i < slices; ++i) part->starts.push_back(weight.row(i * rows + first));
  part->view.shape.dims[static_cast<std::size_t>(weight.shape.rank - 2)] = count;
  part->view.bytes = {};
  part->view.slices = part->starts;
  return {part, &part->view};
}

void dequantise_row(const TensorView& weight, std::int64_t row, float* out) {
  if (dtype_info(weight.type).code_bits == 0) {
    dequantise_row(weight.type, weight.row(row), out, weight.columns());
  } else {
    dequantise_codes(weight.type, weight.row(row), weight.groups_from(row), out, weight.columns());
  }
}

std::string type_name(const TensorView& weight) {
  const DTypeInfo& info = dtype_info(weight.type);
  if (info.code_bits == 0) return std::string(info.name);
  if (weight.type == DType::mlx_mxfp4) return "MLX mxfp4";
  return fmt::format("MLX {}-bit, group {}", info.code_bits, weight.groups.size);
}

}  // namespace adze::tensor
