// Whole files: what the oracles' BF16 models become, against what ggml's quantiser made of them.
#include "quantise/file.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace adze::quantise {
namespace {

using tensor::DType;
using ::testing::HasSubstr;

std::filesystem::path temporary(const std::string& name) { return std::filesystem::path(::testing::TempDir()) / name; }

// A tiny model: two matrices, a norm, a quantised matrix.
format::GgufFile small_file(const std::string& name) {
  static const std::vector<float> kValues = [] {
    std::vector<float> v(64 * 256);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 251) / 100.0f - 1.0f;
    return v;
  }();
  static const std::vector<std::byte> kQuantised(4 * tensor::row_bytes(DType::q8_0, 256));
  const auto matrix = [](std::int64_t rows) { return tensor::Shape{.dims = {rows, 256, 1, 1}, .rank = 2}; };
  const auto bytes = [&](std::int64_t rows) {
    return std::as_bytes(std::span(kValues).first(static_cast<std::size_t>(rows) * 256));
  };
  format::GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_string("general.name", "Small");
  writer.add_u32("general.file_type", 0);
  writer.add_u32("llama.block_count", 1);
  writer.add_tensor("token_embd.weight", DType::f32, matrix(64), bytes(64));
  writer.add_tensor("blk.0.attn_q.weight", DType::f32, matrix(32), bytes(32));
  writer.add_tensor("blk.0.attn_norm.weight", DType::f32, tensor::Shape{.dims = {256, 1, 1, 1}, .rank = 1}, bytes(1));
  writer.add_tensor("blk.0.attn_k.weight", DType::q8_0, matrix(4), kQuantised);
  EXPECT_TRUE(writer.write(temporary(name)));
  return format::GgufFile::open(temporary(name)).value();
}

TEST(QuantiseFile, KeepsMetadataAndSetsTheFileType) {
  const format::GgufFile in = small_file("adze_quantise_in.gguf");
  const FileOptions options{.scheme = {.mix = find_mix("Q8_0").value()}, .threads = 2};
  const auto plan = plan_file(in, options);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto path = temporary("adze_quantise_out.gguf");
  ASSERT_TRUE(write_file(in, *plan, options, path));
  const auto out = format::GgufFile::open(path).value();
  EXPECT_EQ(out.metadata().get_string("general.name").value(), "Small");
  EXPECT_EQ(out.metadata().get_u64("general.file_type").value(), 7u);
  EXPECT_EQ(out.metadata().get_u64("general.quantization_version").value(), 2u);
  EXPECT_EQ(out.find_tensor("blk.0.attn_q.weight")->view.type, DType::q8_0);
  EXPECT_EQ(out.find_tensor("blk.0.attn_norm.weight")->view.type, DType::f32);
  EXPECT_EQ(out.tensor_bytes(), plan->bytes_after);
}

TEST(QuantiseFile, WhatIsQuantisedStaysUnlessAllowed) {
  const format::GgufFile in = small_file("adze_quantise_in.gguf");
  FileOptions options{.scheme = {.mix = find_mix("Q4_0").value()}};
  const auto refused = plan_file(in, options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("'blk.0.attn_k.weight' is quantised already, as Q8_0"));
  options.allow_requantise = true;
  EXPECT_TRUE(plan_file(in, options));
}

TEST(QuantiseFile, AnImportanceMatrixOfAnotherModelIsRefused) {
  const format::GgufFile in = small_file("adze_quantise_in.gguf");
  format::ImportanceMatrix importance;
  importance.entries["blk.0.attn_q.weight"] = {.sums = std::vector<float>(128, 1.0f), .counts = {1.0f}};
  FileOptions options{.scheme = {.mix = find_mix("Q4_K").value(), .has_importance = true},
                      .importance = &importance,
                      .allow_requantise = true};
  const auto refused = plan_file(in, options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("128 columns for 'blk.0.attn_q.weight', which has 256"));
  importance.entries.clear();
  importance.entries["blk.9.attn_q.weight"] = {.sums = std::vector<float>(256, 1.0f), .counts = {1.0f}};
  options.importance_name = "other.gguf";
  EXPECT_THAT(plan_file(in, options).error().message, HasSubstr("'other.gguf' names none of the model's matrices"));
  options.scheme.mix = find_mix("Q2_K_S").value();
  importance.entries.clear();
  EXPECT_THAT(plan_file(in, options).error().message, HasSubstr("Q2_K_S needs an importance matrix"));
}

TEST(QuantiseFile, APatternThatNamesNoMatrixIsRefused) {
  const format::GgufFile in = small_file("adze_quantise_in.gguf");
  for (const char* pattern : {"attn_qq", "norm"}) {
    const FileOptions options{
        .scheme = {.mix = find_mix("Q4_0").value(), .overrides = {{pattern, tensor::DType::q8_0}}},
        .allow_requantise = true};
    const auto refused = plan_file(in, options);
    ASSERT_FALSE(refused) << pattern;
    EXPECT_THAT(refused.error().message, HasSubstr(fmt::format("'{}' names none", pattern)));
  }
}

TEST(QuantiseFile, StoppedWritesNothing) {
  const format::GgufFile in = small_file("adze_quantise_in.gguf");
  const FileOptions options{.scheme = {.mix = find_mix("Q8_0").value()},
                            .progress = [](std::uint64_t, std::uint64_t) { return false; }};
  const auto path = temporary("adze_quantise_stopped.gguf");
  std::filesystem::remove(path);
  const Status status = write_file(in, plan_file(in, options).value(), options, path);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::cancelled);
  EXPECT_FALSE(std::filesystem::exists(path));
}

// How the oracles were made (oracles/README.md): one type for every matrix, BF16 where rows do not divide.
struct OracleFile {
  std::string model, type;
};

std::vector<OracleFile> oracle_files() {
  return {{"llama-gqa-rope3", "Q4_0"}, {"llama-gqa-rope3", "Q4_1"}, {"llama-gqa-rope3", "Q8_0"},
          {"qwen3-dense", "Q4_0"},     {"qwen3-dense", "Q8_0"},     {"gemma3-text", "Q8_0"}};
}

class OracleBytes : public testing::TestWithParam<OracleFile> {};

TEST_P(OracleBytes, AreThoseOfGgmlsQuantiser) {
  const char* folder = std::getenv("ADZE_TEST_ORACLES");
  if (folder == nullptr) GTEST_SKIP() << "set ADZE_TEST_ORACLES to the oracles' folder";
  const auto& [model, type] = GetParam();
  const auto path = [&](std::string_view of) {
    return std::filesystem::path(folder) / "models" / model / "gguf" / fmt::format("{}-{}.gguf", model, of);
  };
  const auto in = format::GgufFile::open(path("BF16"));
  const auto expected = format::GgufFile::open(path(type));
  ASSERT_TRUE(in && expected);
  const FileOptions options{.scheme = {.mix = find_mix(type).value(), .pure = true}, .threads = 2};
  const auto plan = plan_file(*in, options);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto out_path = temporary(fmt::format("adze_quantise_{}_{}.gguf", model, type));
  ASSERT_TRUE(write_file(*in, *plan, options, out_path));
  const auto out = format::GgufFile::open(out_path).value();
  for (const format::GgufTensor& tensor : expected->tensors()) {
    const format::GgufTensor* got = out.find_tensor(tensor.view.name);
    ASSERT_NE(got, nullptr) << tensor.view.name;
    EXPECT_EQ(got->view.type, tensor.view.type) << tensor.view.name;
    EXPECT_TRUE(std::ranges::equal(got->view.bytes, tensor.view.bytes)) << tensor.view.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Oracles, OracleBytes, testing::ValuesIn(oracle_files()), [](const auto& test) {
  std::string name = test.param.model + "_" + test.param.type;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace adze::quantise
