// A weight as MLX stores it, made from float32 values; the test owns its three tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/view.hpp"

namespace adze::test {

// Not copyable: the view points into the object.
class MlxWeight {
 public:
  // Affine codes: the scale spans a group's values, its sign and a small correction make the edge with the larger
  // magnitude exact, and zero as well where the group reaches it. `mlx_mxfp4` takes groups of 32 and no other scales.
  // The bytes start `shift` bytes past wherever the allocator put them.
  MlxWeight(tensor::DType type, std::int64_t rows, std::int64_t columns, std::span<const float> values, int group,
            tensor::GroupScales::Type scales = tensor::GroupScales::Type::bf16, std::size_t shift = 1);
  MlxWeight(const MlxWeight&) = delete;
  MlxWeight& operator=(const MlxWeight&) = delete;

  const tensor::TensorView* ref() const { return &view_; }
  std::span<const std::byte> codes() const { return view_.bytes; }
  std::span<const std::byte> scales() const { return std::span(scales_).subspan(shift_); }
  std::span<const std::byte> biases() const { return std::span(biases_).subspan(shift_); }
  std::vector<float> values() const;  // dequantised [rows, columns]

 private:
  void encode_affine(std::span<const float> values, std::size_t group);
  void encode_mxfp4(std::span<const float> values, std::size_t group);
  void put_code(std::size_t index, unsigned code);

  std::string name_ = "weight";
  std::size_t shift_;
  std::vector<std::byte> codes_, scales_, biases_;
  tensor::TensorView view_;
};

}  // namespace adze::test
