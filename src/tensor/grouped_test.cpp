// Codes with scales beside them, by what the layout says about single bits.
#include "tensor/grouped.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "support/mlx_weight.hpp"
#include "tensor/view.hpp"

namespace adze::tensor {
namespace {

using Scale = GroupScales::Type;

constexpr DType kAffine[] = {DType::mlx_2, DType::mlx_3, DType::mlx_4, DType::mlx_5, DType::mlx_6, DType::mlx_8};

std::vector<float> random_values(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.02f, 0.1f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Codes, AreTheBitsOfTheirRowInOrder) {
  // Bit k of the stream is set where k is a multiple of 3 or 7.
  std::vector<std::byte> row(64);
  const auto bit = [](std::size_t k) { return k % 3 == 0 || k % 7 == 0; };
  for (std::size_t k = 0; k < 8 * row.size(); ++k) {
    if (bit(k)) row[k / 8] |= std::byte(1u << (k % 8));
  }
  for (const DType type : kAffine) {
    const std::size_t bits = dtype_info(type).code_bits;
    for (std::size_t i = 0; i < 8 * row.size() / bits; ++i) {
      unsigned expected = 0;
      for (std::size_t b = 0; b < bits; ++b) expected |= static_cast<unsigned>(bit(i * bits + b)) << b;
      ASSERT_EQ(code_at(row.data(), static_cast<int>(bits), static_cast<std::int64_t>(i)), expected)
          << bits << " bits, code " << i;
    }
  }
}

TEST(Codes, StandForScaleTimesCodePlusBias) {
  const std::vector<float> values = random_values(3 * 256);
  for (const DType type : kAffine) {
    for (const int group : {32, 64, 128}) {
      for (const Scale scales : {Scale::f32, Scale::f16, Scale::bf16}) {
        const test::MlxWeight weight(type, 3, 256, values, group, scales);
        const std::vector<float> stored = weight.values();
        const float levels = static_cast<float>((1u << dtype_info(type).code_bits) - 1);
        for (std::size_t i = 0; i < values.size(); ++i) {
          // Half a step of a group that spans about a unit, and what rounding scale and bias to 8 bits of precision
          // adds.
          ASSERT_NEAR(stored[i], values[i], 0.5f / levels + 0.01f) << weight.ref()->groups.size << " at " << i;
        }
      }
    }
  }
}

TEST(Codes, RowsAreTakenWithTheirScales) {
  const std::vector<float> values = random_values(5 * 128);
  for (const DType type : {DType::mlx_3, DType::mlx_mxfp4}) {
    const test::MlxWeight weight(type, 5, 128, values, 32);
    const std::vector<float> all = weight.values();
    const TensorView rows = rows_of(*weight.ref(), 2, 3);
    EXPECT_EQ(rows.rows(), 3);
    for (std::int64_t r = 0; r < 3; ++r) {
      std::vector<float> row(128);
      dequantise_row(rows, r, row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), all.begin() + (2 + r) * 128)) << r;
    }
    const std::size_t scales = type == DType::mlx_3 ? 2 * 2 : 1;  // bytes a group
    EXPECT_EQ(rows.size_bytes(), 3 * (128 * dtype_info(type).code_bits / 8 + 4 * scales));
  }
}

// Two matrices of four rows: the last two of each.
TEST(Views, TheSameRowsOfEachSlice) {
  const std::vector<float> values = random_values(2 * 4 * 3);
  const TensorView whole{"x", DType::f32, {.dims = {2, 4, 3, 1}, .rank = 3}, std::as_bytes(std::span(values))};
  const auto part = rows_of_each(whole, 2, 2);
  EXPECT_EQ(part->shape, (Shape{.dims = {2, 2, 3, 1}, .rank = 3}));
  EXPECT_EQ(part->rows(), 4);
  const std::int64_t from[] = {2, 3, 6, 7};
  for (std::int64_t row = 0; row < 4; ++row) EXPECT_EQ(part->row(row), whole.row(from[row])) << row;
  EXPECT_EQ(part->size_bytes(), values.size() / 2 * sizeof(float));
  EXPECT_EQ(size_bytes(DType::q8_0, {.dims = {2, 3, 64, 1}, .rank = 3}), 2u * 3 * 2 * 34);
  EXPECT_TRUE(is_block_type(DType::mxfp4));
  EXPECT_FALSE(is_block_type(DType::bf16));
}

TEST(Codes, HaveANameForPeople) {
  const std::vector<float> values = random_values(128);
  EXPECT_EQ(type_name(*test::MlxWeight(DType::mlx_5, 1, 128, values, 128).ref()), "MLX 5-bit, group 128");
  EXPECT_EQ(type_name(*test::MlxWeight(DType::mlx_mxfp4, 1, 128, values, 32).ref()), "MLX mxfp4");
  TensorView blocks;
  blocks.type = DType::q4_k;
  EXPECT_EQ(type_name(blocks), "Q4_K");
}

}  // namespace
}  // namespace adze::tensor
