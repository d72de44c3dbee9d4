// Every block type against recorded values of the reference (tests/data/quant), bit for bit in both directions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/safetensors_fixture.hpp"
#include "tensor/dtype.hpp"

namespace adze::tensor {
namespace {

const test::SafetensorsFixture& vectors() {
  static const auto kFixture = test::SafetensorsFixture::open(ADZE_TEST_DATA "/quant/vectors.safetensors");
  return kFixture;
}

const test::SafetensorsFixture& quantised() {
  static const auto kFixture = test::SafetensorsFixture::open(ADZE_TEST_DATA "/quant/quantised.safetensors");
  return kFixture;
}

const test::SafetensorsFixture& weighted() {
  static const auto kFixture = test::SafetensorsFixture::open(ADZE_TEST_DATA "/quant/weighted.safetensors");
  return kFixture;
}

void expect_same_blocks(const DTypeInfo& info, std::span<const float> in, std::span<const std::byte> expected,
                        const float* importance = nullptr) {
  const auto elements = static_cast<std::int64_t>(in.size());
  std::vector<std::byte> got(row_bytes(info.type, elements));
  ASSERT_EQ(got.size(), expected.size());
  quantise_row(info.type, in.data(), got.data(), elements, importance);
  int different = 0;
  for (std::size_t at = 0; at < got.size(); at += info.block_bytes) {
    if (std::memcmp(got.data() + at, expected.data() + at, info.block_bytes) == 0) continue;
    if (different++ == 0) {
      const std::size_t block = at / info.block_bytes;
      ADD_FAILURE() << info.name << " block " << block << ", values from " << in[block * info.block_elements];
    }
  }
  EXPECT_EQ(different, 0) << "of " << got.size() / info.block_bytes << " blocks";
}

class BlockType : public testing::TestWithParam<DTypeInfo> {};

// Random blocks with zero, subnormal, negative and largest scales.
TEST_P(BlockType, DequantisesToTheRecordedBits) {
  const DTypeInfo& info = GetParam();
  const std::string name(info.name);
  if (info.type == DType::f32) GTEST_SKIP() << "F32 is its own bits";
  const auto bytes = vectors().bytes(name + ".bytes");
  const auto expected = vectors().floats(name + ".f32");
  std::vector<float> got(expected.size());
  ASSERT_EQ(row_bytes(info.type, static_cast<std::int64_t>(got.size())), bytes.size());
  dequantise_row(info.type, bytes.data(), got.data(), static_cast<std::int64_t>(got.size()));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << name << " value " << i << ": " << got[i] << " instead of " << expected[i];
  }
}

TEST_P(BlockType, QuantisesToTheRecordedBytes) {
  const DTypeInfo& info = GetParam();
  const std::string name(info.name);
  if (info.block_elements == 1) GTEST_SKIP() << name << " is a rounding, tested in base";
  if (vectors().has("quantise." + name + ".bytes")) {
    expect_same_blocks(info, vectors().floats("quantise.input"), vectors().bytes("quantise." + name + ".bytes"));
  }
  expect_same_blocks(info, quantised().floats("input"), quantised().bytes(name + ".bytes"));
}

// With an importance matrix: `rows` says which rows of the unweighted input were taken.
TEST_P(BlockType, QuantisesToTheRecordedBytesUnderAnImportanceMatrix) {
  const DTypeInfo& info = GetParam();
  const std::string name(info.name);
  const auto input = quantised().floats("input");
  const auto importance = weighted().floats("importance");
  const auto rows = weighted().floats("rows");
  const std::size_t columns = importance.size() / rows.size();
  EXPECT_EQ(weighted().has(name + ".bytes"), info.takes_importance) << name;
  std::vector<std::byte> unweighted;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = std::span(input).subspan(static_cast<std::size_t>(rows[i]) * columns, columns);
    const std::size_t bytes = row_bytes(info.type, static_cast<std::int64_t>(columns));
    std::span<const std::byte> expected;
    if (info.takes_importance) {
      expected = weighted().bytes(name + ".bytes").subspan(i * bytes, bytes);
    } else {
      unweighted.resize(bytes);
      quantise_row(info.type, row.data(), unweighted.data(), static_cast<std::int64_t>(columns));
      expected = unweighted;
    }
    expect_same_blocks(info, row, expected, importance.data() + i * columns);
  }
}

// What is stored stays close to what was given: half a step of the coarsest group, and zeros stay zeros.
TEST_P(BlockType, RoundTripKeepsZerosAndTheOrderOfMagnitude) {
  const DTypeInfo& info = GetParam();
  std::vector<float> in(512, 0.0f);
  for (std::size_t i = 256; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i));
  std::vector<std::byte> bytes(row_bytes(info.type, 512));
  std::vector<float> out(512);
  quantise_row(info.type, in.data(), bytes.data(), 512);
  dequantise_row(info.type, bytes.data(), out.data(), 512);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(out[i], 0.0f) << info.name << " value " << i;
  for (std::size_t i = 256; i < 512; ++i) EXPECT_NEAR(out[i], in[i], 0.5f) << info.name << " value " << i;
}

// Non-finite and extreme values give some block, never undefined behaviour (the sanitizer build watches).
TEST_P(BlockType, AnyFloatCanBeQuantised) {
  const DTypeInfo& info = GetParam();
  const float extremes[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::lowest(),
                            std::numeric_limits<float>::denorm_min(),
                            1e-38f,
                            1e-10f};
  std::vector<std::byte> bytes(row_bytes(info.type, 256));
  for (const float extreme : extremes) {
    std::vector<float> in(256, extreme);
    quantise_row(info.type, in.data(), bytes.data(), 256);
    for (std::size_t i = 0; i < in.size(); i += 2) in[i] = 1.0f;
    quantise_row(info.type, in.data(), bytes.data(), 256);
    const std::vector<float> importance(256, extreme);
    quantise_row(info.type, in.data(), bytes.data(), 256, importance.data());
    dequantise_row(info.type, bytes.data(), in.data(), 256);
  }
}

std::vector<DTypeInfo> weight_types() {
  std::vector<DTypeInfo> types;
  for (const DTypeInfo& info : all_dtypes()) {
    if (info.dequantise != nullptr) types.push_back(info);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, BlockType, testing::ValuesIn(weight_types()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace adze::tensor
