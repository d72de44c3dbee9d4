#include "model/folder_weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "format/gguf_writer.hpp"
#include "model/tensors.hpp"
#include "support/model_folder.hpp"
#include "tensor/blocks/mxfp4.hpp"

namespace adze::model {
namespace {

using tensor::Shape;

std::vector<std::byte> floats(int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// One tensor of a folder, or two.
class Rearranged : public testing::Test {
 protected:
  std::vector<float> rearranged(const Shape& shape, Transform transform, const ops::DeltaHeads& heads = {}) {
    folder_.write_weights("model.safetensors", tensors);
    format::GgufWriter metadata;
    metadata.add_string("general.architecture", "test");
    store_.emplace(
        format::WeightStore::from_folder(format::SafetensorsFolder::open(folder_.path()).value(), metadata.to_bytes())
            .value());
    const auto made = rearrange(*store_, "w", shape, transform, heads, "a test");
    if (!made) throw std::runtime_error(made.error().message);
    EXPECT_TRUE(store_->unused().empty());
    const tensor::TensorView& view = (*made)->view;
    EXPECT_EQ(view.shape, shape);
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    tensor::dequantise_row(view.type, view.bytes.data(), values.data(), shape.elements());
    return values;
  }
  std::vector<test::FolderTensor> tensors;

 private:
  test::ModelFolder folder_{"adze_rearranged"};
  std::optional<format::WeightStore> store_;
};

TEST_F(Rearranged, TransposedMatricesOfEachExpert) {
  tensors = {{"w", "F32", {2, 3, 37}, floats(2 * 3 * 37)}};  // 37: more than a tile
  const std::vector<float> out = rearranged({.dims = {2, 37, 3, 1}, .rank = 3}, Transform::transposed);
  for (int e = 0; e < 2; ++e) {
    for (int r = 0; r < 37; ++r) {
      for (int c = 0; c < 3; ++c) {
        EXPECT_EQ(out[static_cast<std::size_t>((e * 37 + r) * 3 + c)], static_cast<float>((e * 3 + c) * 37 + r));
      }
    }
  }
}

TEST_F(Rearranged, EverySecondColumnOfAMatrixAndValueOfAVector) {
  const Shape matrix{.dims = {1, 2, 3, 1}, .rank = 3}, vector{.dims = {2, 3, 1, 1}, .rank = 2};
  tensors = {{"w", "F32", {1, 3, 4}, floats(12)}};  // rows (0 1 2 3), (4 5 6 7), (8 9 10 11)
  EXPECT_EQ(rearranged(matrix, Transform::transposed_even), (std::vector<float>{0, 4, 8, 2, 6, 10}));
  EXPECT_EQ(rearranged(matrix, Transform::transposed_odd), (std::vector<float>{1, 5, 9, 3, 7, 11}));
  tensors = {{"w", "F32", {2, 6}, floats(12)}};
  EXPECT_EQ(rearranged(vector, Transform::transposed_even), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(rearranged(vector, Transform::transposed_odd), (std::vector<float>{1, 3, 5, 7, 9, 11}));
}

TEST_F(Rearranged, Mxfp4InTwoParts) {
  constexpr int kRows = 4, kBlocks = 2;  // of one expert: rows 0 and 2 are even
  std::vector<std::byte> codes(kRows * kBlocks * 16), scales(kRows * kBlocks);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 37 + 11);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(120 + i);
  tensors = {{"w_blocks", "U8", {1, kRows, kBlocks, 16}, codes}, {"w_scales", "U8", {1, kRows, kBlocks}, scales}};
  const auto value = [&](int row, int column) {
    const auto byte = std::to_integer<unsigned>(codes[static_cast<std::size_t>(row * 32 + column / 2)]);
    const int scale = 120 + row * kBlocks + column / 32;
    const auto doubled = tensor::blocks::kMxfp4Doubled[column % 2 == 0 ? byte & 15u : byte >> 4];
    return std::ldexp(static_cast<float>(doubled), scale - 128);
  };
  for (const auto& [transform, first] : {std::pair{Transform::transposed_even, 0}, {Transform::transposed_odd, 1}}) {
    const std::vector<float> out = rearranged({.dims = {1, 2, 64, 1}, .rank = 3}, transform);
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 64; ++c) EXPECT_EQ(out[static_cast<std::size_t>(r * 64 + c)], value(first + 2 * r, c));
    }
  }
}

TEST_F(Rearranged, ProjectionsGroupedByKeyHead) {
  // Two key heads of one, four value heads of one: groups q k v v z z.
  const ops::DeltaHeads heads{.key_heads = 2, .value_heads = 4, .key_size = 1, .value_size = 1};
  tensors = {{"w", "F32", {12, 1}, floats(12)}};
  EXPECT_EQ(rearranged({.dims = {8, 1, 1, 1}, .rank = 2}, Transform::delta_qkv, heads),
            (std::vector<float>{0, 6, 1, 7, 2, 3, 8, 9}));
  EXPECT_EQ(rearranged({.dims = {4, 1, 1, 1}, .rank = 2}, Transform::delta_z, heads),
            (std::vector<float>{4, 5, 10, 11}));
}

}  // namespace
}  // namespace adze::model
