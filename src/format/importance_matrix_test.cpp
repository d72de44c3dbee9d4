#include "format/importance_matrix.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/file.hpp"
#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"

namespace adze::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path temporary(const std::string& name) { return std::filesystem::path(::testing::TempDir()) / name; }

tensor::Shape shape(std::initializer_list<std::int64_t> dims) {
  tensor::Shape made;
  for (const std::int64_t dim : dims) made.dims[static_cast<std::size_t>(made.rank++)] = dim;
  return made;
}

ImportanceMatrix small() {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.attn_q.weight"] = {.sums = {2, 4, 8}, .counts = {2}};
  matrix.entries["blk.0.ffn_up_exps.weight"] = {.sums = {1, 2, 3, 4, 5, 6}, .counts = {1, 0}};
  matrix.datasets = {"text.txt"};
  matrix.chunk_count = 3;
  matrix.chunk_size = 512;
  return matrix;
}

TEST(ImportanceMatrix, ReadsWhatItWrote) {
  const auto path = temporary("adze_importance.gguf");
  ASSERT_TRUE(small().write(path));
  const auto matrix = ImportanceMatrix::open(path);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(matrix->chunk_count, 3u);
  EXPECT_EQ(matrix->chunk_size, 512u);
  EXPECT_THAT(matrix->datasets, ElementsAre("text.txt"));
  EXPECT_THAT(matrix->weights_for("blk.0.attn_q.weight", shape({7, 3})).value(), ElementsAre(1, 2, 4));
  // An expert that saw nothing weighs all columns the same.
  EXPECT_THAT(matrix->weights_for("blk.0.ffn_up_exps.weight", shape({2, 7, 3})).value(), ElementsAre(1, 2, 3, 1, 1, 1));
  EXPECT_TRUE(matrix->weights_for("blk.0.attn_k.weight", shape({7, 3})).value().empty());
  EXPECT_THAT(matrix->weights_for("blk.0.attn_q.weight", shape({7, 4})).error().message, HasSubstr("3 columns"));
}

TEST(ImportanceMatrix, SumsOfTwoTextsAdd) {
  ImportanceMatrix matrix = small();
  ImportanceMatrix other;
  other.entries["blk.0.attn_q.weight"] = {.sums = {1, 1, 1}, .counts = {2}};
  other.entries["blk.0.ffn_up_exps.weight"] = {.sums = {1, 1, 1, 8, 8, 8}, .counts = {1, 4}};
  other.entries["blk.1.attn_q.weight"] = {.sums = {9}, .counts = {1}};
  other.chunk_count = 2;
  ASSERT_TRUE(matrix.add(other));
  EXPECT_THAT(matrix.entries["blk.0.attn_q.weight"].counts, ElementsAre(2 + 2 * 512));  // `other` counts in chunks
  EXPECT_THAT(matrix.entries["blk.0.attn_q.weight"].sums, ElementsAre(2 + 512, 4 + 512, 8 + 512));
  EXPECT_THAT(matrix.entries["blk.1.attn_q.weight"].counts, ElementsAre(512));
  EXPECT_EQ(matrix.chunk_count, 5u);
  other.entries["blk.0.attn_q.weight"].sums.pop_back();
  EXPECT_THAT(matrix.add(other).error().message, HasSubstr("'blk.0.attn_q.weight' has 3 columns"));
}

std::string number(std::int32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

std::string records() {
  const float values[] = {4, 6, 8};
  const std::string name = "blk.0.attn_q.weight";
  return number(1) + number(static_cast<std::int32_t>(name.size())) + name + number(2) + number(3) +
         std::string(reinterpret_cast<const char*>(values), sizeof values) + number(2) + number(4) + "text";
}

TEST(ImportanceMatrix, ReadsTheOlderForm) {
  const auto path = temporary("adze_importance.dat");
  ASSERT_TRUE(write_file_atomic(path, std::string_view(records())));
  const auto matrix = ImportanceMatrix::open(path);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_THAT(matrix->weights_for("blk.0.attn_q.weight", shape({7, 3})).value(), ElementsAre(2, 3, 4));
  EXPECT_THAT(matrix->datasets, ElementsAre("text"));
  EXPECT_EQ(matrix->chunk_size, 0u);
}

TEST(ImportanceMatrix, DamageIsNamed) {
  const auto path = temporary("adze_importance_bad.dat");
  const std::string whole = records();
  const std::size_t entry_end = whole.size() - 12;  // what follows may be missing
  for (std::size_t size = 0; size < entry_end; ++size) {
    ASSERT_TRUE(write_file_atomic(path, std::string_view(whole).substr(0, size)));
    EXPECT_FALSE(ImportanceMatrix::open(path)) << size;
  }
  const std::string negative = std::string(whole).replace(whole.find("weight") + 6 + 8, 4, number(-1));  // no float
  ASSERT_TRUE(write_file_atomic(path, std::string_view(negative)));
  EXPECT_THAT(ImportanceMatrix::open(path).error().message, HasSubstr("'blk.0.attn_q.weight' holds a number"));

  GgufWriter model;
  model.add_string("general.architecture", "llama");
  ASSERT_TRUE(model.write(path));
  EXPECT_EQ(ImportanceMatrix::open(path).error().code, ErrorCode::not_a_model);

  // What open would refuse is not written, and an earlier file stays.
  ASSERT_TRUE(small().write(path));
  for (const float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ImportanceMatrix matrix = small();
    matrix.entries["blk.0.attn_q.weight"].sums[1] = bad;
    const Status status = matrix.write(path);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("'blk.0.attn_q.weight' holds a number"));
  }
  EXPECT_TRUE(ImportanceMatrix::open(path));

  GgufWriter half;
  const float sums[] = {1, 2};
  half.add_string("general.type", "imatrix");
  half.add_tensor("x.in_sum2", tensor::DType::f32, shape({1, 2}), std::as_bytes(std::span(sums)));
  ASSERT_TRUE(half.write(path));
  EXPECT_THAT(ImportanceMatrix::open(path).error().message, HasSubstr("2 sums for 0 counts"));
}

}  // namespace
}  // namespace adze::format
