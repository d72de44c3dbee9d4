// A tensor as others see it: type, shape and bytes that somebody else owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.hpp"

namespace adze::tensor {

// Row-major, outermost first: a projection's weight is [out, in], and dimensions that are not used are 1 at the front
// of nothing: `rank` says how many count. (GGUF lists them innermost first; the reader turns them round.)
struct Shape {
  std::array<std::int64_t, 4> dims{1, 1, 1, 1};
  int rank = 0;
  std::int64_t operator[](int i) const { return dims[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  bool operator==(const Shape&) const = default;
};

// Bytes of a tensor whose rows lie one behind the other, without scales beside it. The last dimension must be a
// multiple of the type's block (ADZE_CHECK).
std::uint64_t size_bytes(DType type, const Shape& shape);

struct TensorView {
  std::string_view name;  // lives as long as the weight store
  DType type = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  // Where the outermost slices begin, when they do not lie one behind the other (experts in tensors of their own); the
  // rows of a slice always do. Then `bytes` is empty. The pointers live as long as the view.
  std::span<const std::byte* const> slices{};
  GroupScales groups{};  // of codes; their bytes live as long as `bytes`

  std::int64_t columns() const { return shape.rank == 0 ? 1 : shape.dims[static_cast<std::size_t>(shape.rank - 1)]; }
  std::int64_t rows() const { return shape.elements() / columns(); }
  std::size_t row_stride() const { return row_bytes(type, columns()); }
  // Bytes of the whole weight, scales included.
  std::uint64_t size_bytes() const;
  const std::byte* row(std::int64_t r) const {
    if (slices.empty()) return bytes.data() + static_cast<std::size_t>(r) * row_stride();
    const std::int64_t each = rows() / static_cast<std::int64_t>(slices.size());
    return slices[static_cast<std::size_t>(r / each)] + static_cast<std::size_t>(r % each) * row_stride();
  }

  // Of codes: bytes from one row's scales to the next one's, and the scales from row `r` on.
  std::size_t scale_stride() const;
  GroupScales groups_from(std::int64_t r) const;
};

// Rows first .. first + count of the weight's rows(), as a matrix of their own over the same bytes.
TensorView rows_of(const TensorView& weight, std::int64_t first, std::int64_t count);

// Rows first .. first + count of each outermost slice (of every expert), as slices over the same bytes; what is
// returned owns their starts. Not for weights whose scales stand beside them, which lie in no slices (ADZE_CHECK).
std::shared_ptr<const TensorView> rows_of_each(const TensorView& weight, std::int64_t first, std::int64_t count);

// Row `row` of the weight's rows() in float32, exactly; `out` has columns() values.
void dequantise_row(const TensorView& weight, std::int64_t row, float* out);

// For people: "Q4_K", "MLX 4-bit, group 64", "MLX mxfp4".
std::string type_name(const TensorView& weight);

}  // namespace adze::tensor
