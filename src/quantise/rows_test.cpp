#include "quantise/rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace adze::quantise {
namespace {

constexpr std::int64_t kRows = 300, kColumns = 256;

std::vector<float> values() {
  std::vector<float> v(kRows * kColumns);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i) * 0.37f);
  return v;
}

tensor::TensorView view(const std::vector<float>& v) {
  return {"blk.0.ffn_down_exps.weight", tensor::DType::f32,
          tensor::Shape{.dims = {3, kRows / 3, kColumns, 1}, .rank = 3}, std::as_bytes(std::span(v))};
}

TEST(QuantiseRows, EachMatrixHasItsOwnImportanceAndThreadsChangeNothing) {
  const std::vector<float> v = values();
  std::vector<float> importance(3 * kColumns);
  for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = 1.0f + static_cast<float>((i * i) % 97);
  const std::size_t row_bytes = tensor::row_bytes(tensor::DType::q3_k, kColumns);
  std::vector<std::byte> expected(kRows * row_bytes);
  for (std::int64_t r = 0; r < kRows; ++r) {
    tensor::quantise_row(tensor::DType::q3_k, v.data() + r * kColumns,
                         expected.data() + static_cast<std::size_t>(r) * row_bytes, kColumns,
                         importance.data() + r / (kRows / 3) * kColumns);
  }
  for (const int threads : {1, 3}) {
    std::vector<std::byte> got(expected.size());
    ASSERT_TRUE(quantise_rows(view(v), 0, kRows, tensor::DType::q3_k, importance, threads, got.data()));
    EXPECT_EQ(got, expected) << threads << " threads";
  }
  std::vector<std::byte> part(7 * row_bytes);
  ASSERT_TRUE(quantise_rows(view(v), 98, 7, tensor::DType::q3_k, importance, 2, part.data()));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(98 * row_bytes)));
}

TEST(QuantiseRows, AValueThatIsNotFiniteIsRefused) {
  std::vector<float> v = values();
  v[1000] = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> got(kRows * tensor::row_bytes(tensor::DType::q8_0, kColumns));
  const Status status = quantise_rows(view(v), 0, kRows, tensor::DType::q8_0, {}, 2, got.data());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("'blk.0.ffn_down_exps.weight'"));
}

// 1e5 is more than float16 holds; a block's scale is float16, so that much larger values are fine in a block.
TEST(QuantiseRows, AValueThatIsTooLargeForTheTypeIsRefused) {
  const auto quantised = [](float largest, tensor::DType type) {
    std::vector<float> v = values();
    v[1000] = largest;
    std::vector<std::byte> got(kRows * tensor::row_bytes(type, kColumns));
    return quantise_rows(view(v), 0, kRows, type, {}, 2, got.data());
  };
  const Status status = quantised(1e5f, tensor::DType::f16);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("'blk.0.ffn_down_exps.weight' holds values that are too"));
  EXPECT_FALSE(quantised(-1e6f, tensor::DType::q4_0));
  EXPECT_FALSE(quantised(1e9f, tensor::DType::q8_0));
  EXPECT_FALSE(quantised(1e9f, tensor::DType::q4_k));
  EXPECT_FALSE(quantised(std::numeric_limits<float>::max(), tensor::DType::bf16));
  EXPECT_TRUE(quantised(65504.0f, tensor::DType::f16));
  EXPECT_TRUE(quantised(5e5f, tensor::DType::q4_0));
  EXPECT_TRUE(quantised(1e30f, tensor::DType::bf16));
  EXPECT_TRUE(quantised(1e30f, tensor::DType::mxfp4));
}

TEST(ProduceAs, WhatIsCopiedIsFiniteToo) {
  std::vector<float> v = values();
  v.back() = std::numeric_limits<float>::infinity();
  const Status status =
      produce_as(view(v), tensor::DType::f32, {}, 2, [](std::span<const std::byte>) -> Status { return {}; });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::corrupt_file);
}

TEST(ProduceAs, HandsOnWhatHasTheTypeAlready) {
  const std::vector<float> v = values();
  std::vector<std::byte> got;
  ASSERT_TRUE(produce_as(view(v), tensor::DType::f32, {}, 1, [&](std::span<const std::byte> bytes) -> Status {
    got.insert(got.end(), bytes.begin(), bytes.end());
    return {};
  }));
  EXPECT_TRUE(std::ranges::equal(got, std::as_bytes(std::span(v))));
}

TEST(ProduceAs, TakesATensorInSlices) {
  const std::vector<float> v = values();
  const tensor::TensorView whole = view(v);
  tensor::TensorView sliced = whole;
  const std::byte* const slices[] = {whole.row(0), whole.row(kRows / 3), whole.row(2 * kRows / 3)};
  sliced.bytes = {};
  sliced.slices = slices;
  for (const tensor::DType type : {tensor::DType::f32, tensor::DType::q8_0}) {
    std::vector<std::byte> expected, got;
    const auto into = [](std::vector<std::byte>& out) {
      return [&out](std::span<const std::byte> bytes) -> Status {
        out.insert(out.end(), bytes.begin(), bytes.end());
        return {};
      };
    };
    ASSERT_TRUE(produce_as(whole, type, {}, 1, into(expected)));
    ASSERT_TRUE(produce_as(sliced, type, {}, 2, into(got)));
    EXPECT_EQ(got, expected);
  }
}

}  // namespace
}  // namespace adze::quantise
