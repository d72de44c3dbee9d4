#include "tensor/dtype.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tensor/view.hpp"

namespace adze::tensor {
namespace {

TEST(DType, EveryRowIsFoundByItsTypeAndByItsGgufId) {
  std::set<std::string_view> names;
  for (const DTypeInfo& info : all_dtypes()) {
    EXPECT_EQ(&dtype_info(info.type), &info);
    if (info.ggml_id != kNoGgmlId) {
      EXPECT_EQ(dtype_from_ggml(info.ggml_id), info.type);
      EXPECT_EQ(ggml_type_name(info.ggml_id), info.name);
    }
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(info.dequantise == nullptr, info.quantise == nullptr) << info.name;
  }
}

TEST(DType, RefusedTypesHaveANameAndNoDType) {
  for (const auto& [id, name] : std::vector<std::pair<std::uint32_t, std::string>>{
           {9, "Q8_1"}, {16, "IQ2_XXS"}, {29, "IQ1_M"}, {31, "Q4_0_4_4"}, {34, "TQ1_0"}, {40, "NVFP4"}}) {
    EXPECT_EQ(dtype_from_ggml(id), std::nullopt);
    EXPECT_EQ(ggml_type_name(id), name);
  }
  for (std::uint32_t id = 0; id <= 42; ++id) EXPECT_FALSE(ggml_type_name(id).empty()) << id;
  for (const std::uint32_t id : {43u, 1000u, 0xffffffffu}) {
    EXPECT_EQ(dtype_from_ggml(id), std::nullopt);
    EXPECT_TRUE(ggml_type_name(id).empty());
  }
}

TEST(DType, RowBytesCountsWholeBlocks) {
  EXPECT_EQ(row_bytes(DType::f32, 7), 28u);
  EXPECT_EQ(row_bytes(DType::q4_1, 576), 360u);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420u);
  EXPECT_EQ(row_bytes(DType::mxfp4, 0), 0u);
  EXPECT_DEATH(row_bytes(DType::q4_k, 255), "255 elements are no whole number of Q4_K blocks of 256");
}

TEST(DType, ConversionsRefuseTypesThatAreNoWeights) {
  std::byte bytes[8] = {};
  float value = 0;
  EXPECT_DEATH(dequantise_row(DType::i64, bytes, &value, 1), "I64 is not a weight type");
}

TEST(DType, RowsMayLieAtAnyAddress) {
  std::vector<float> in(256);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) / 32.0f - 4.0f;
  for (const DTypeInfo& info : all_dtypes()) {
    if (info.quantise == nullptr) continue;
    const std::size_t bytes = row_bytes(info.type, 256);
    std::vector<std::byte> aligned(bytes);
    std::vector<std::byte> shifted(bytes + 1);
    std::vector<float> from_aligned(256);
    std::vector<float> from_shifted(256);
    quantise_row(info.type, in.data(), aligned.data(), 256);
    quantise_row(info.type, in.data(), shifted.data() + 1, 256);
    dequantise_row(info.type, aligned.data(), from_aligned.data(), 256);
    dequantise_row(info.type, shifted.data() + 1, from_shifted.data(), 256);
    EXPECT_EQ(from_aligned, from_shifted) << info.name;
  }
}

TEST(TensorView, RowsFollowTheStrideOfTheType) {
  std::vector<std::byte> bytes(2 * 3 * 18);
  const TensorView view{"w", DType::q4_0, Shape{.dims = {3, 64, 1, 1}, .rank = 2}, bytes};
  EXPECT_EQ(view.columns(), 64);
  EXPECT_EQ(view.rows(), 3);
  EXPECT_EQ(view.row(2), bytes.data() + 72);
}

}  // namespace
}  // namespace adze::tensor
