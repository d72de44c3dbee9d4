#include "format/gguf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "format/gguf_writer.hpp"
#include "format/weight_store.hpp"

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

// 64 float32 values 0, 1, 2, …
const std::vector<float>& values() {
  static const std::vector<float> made = [] {
    std::vector<float> v(64);
    std::iota(v.begin(), v.end(), 0.0f);
    return v;
  }();
  return made;
}

std::span<const std::byte> value_bytes(std::size_t count) { return std::as_bytes(std::span(values()).first(count)); }

Result<GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "memory.gguf");
}

GgufWriter small_model() {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_u32("llama.block_count", 2);
  writer.add_tensor("token_embd.weight", tensor::DType::f32, shape({4, 8}), value_bytes(32));
  writer.add_tensor("output_norm.weight", tensor::DType::f32, shape({5}), value_bytes(5));
  return writer;
}

TEST(Gguf, BytesMadeInPiecesAreTheBytesOfTheTensor) {
  const auto in_pieces = [](const TensorSink& sink) -> Status {
    for (std::size_t row = 0; row < 4; ++row) ADZE_TRY_STATUS(sink(value_bytes(32).subspan(row * 32, 32)));
    return {};
  };
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_u32("llama.block_count", 2);
  writer.add_tensor("token_embd.weight", tensor::DType::f32, shape({4, 8}), in_pieces);
  writer.add_tensor("output_norm.weight", tensor::DType::f32, shape({5}), value_bytes(5));
  const std::string expected = small_model().to_bytes();
  EXPECT_EQ(writer.to_bytes(), expected);
  EXPECT_EQ(writer.file_bytes(), expected.size());
  const auto path = temporary("adze_streamed.gguf");
  ASSERT_TRUE(writer.write(path));
  EXPECT_EQ(read_file(path, 1 << 20).value(), expected);
}

TEST(Gguf, AFailedProducerLeavesTheOldFile) {
  const auto folder = temporary("adze_streamed_failure");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file_atomic(folder / "model.gguf", "old"));
  GgufWriter writer;
  writer.add_tensor("t", tensor::DType::f32, shape({4}), [](const TensorSink& sink) -> Status {
    ADZE_TRY_STATUS(sink(value_bytes(2)));
    return fail(ErrorCode::io, "the source went away");
  });
  EXPECT_EQ(writer.write(folder / "model.gguf").error().message, "the source went away");
  EXPECT_EQ(read_file(folder / "model.gguf", 100).value(), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);  // no temporary is left
}

TEST(Gguf, ReadsWhatTheWriterWrote) {
  const auto path = temporary("adze_small.gguf");
  ASSERT_TRUE(small_model().write(path));
  for (const bool map : {true, false}) {
    const auto file = GgufFile::open(path, {.map = map});
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->architecture(), "llama");
    EXPECT_EQ(file->metadata().get_u64("llama.block_count").value(), 2u);
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor* embedding = file->find_tensor("token_embd.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_EQ(embedding->view.shape, shape({4, 8}));
    EXPECT_TRUE(std::ranges::equal(embedding->view.bytes.subspan(96), value_bytes(32).subspan(96)));
    EXPECT_EQ(file->find_tensor("output_norm.weight")->view.shape, shape({5}));
    EXPECT_EQ(file->find_tensor("output.weight"), nullptr);
    EXPECT_EQ(file->tensor_bytes(), 148u);
    EXPECT_EQ(file->file_bytes(), std::filesystem::file_size(path));
    EXPECT_EQ(file->shards()[0].version, 3u);
  }
  std::filesystem::remove(path);
}

TEST(Gguf, ViewsSurviveMoves) {
  const auto path = temporary("adze_moved.gguf");
  ASSERT_TRUE(small_model().write(path));
  auto opened = GgufFile::open(path);
  ASSERT_TRUE(opened);
  const std::string_view name = opened->tensors()[0].view.name;
  const GgufFile moved = std::move(*opened);
  EXPECT_EQ(name, "token_embd.weight");
  EXPECT_EQ(moved.tensors()[0].view.name.data(), name.data());
  std::filesystem::remove(path);
}

TEST(Gguf, MetadataGettersConvertOnlyWithoutLoss) {
  GgufWriter writer;
  writer.add_u8("u8", 200);
  writer.add_i32("negative", -5);
  writer.add_u64("huge", UINT64_MAX);
  writer.add_f32("f32", 0.5f);
  writer.add_f64("f64", 10000.0);
  writer.add_f64("f64_huge", 1e300);
  writer.add_bool("yes", true);
  writer.add_string("text", "abc");
  const std::string bytes = writer.to_bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  const Metadata& m = file->metadata();
  EXPECT_EQ(m.get_u64("u8").value(), 200u);
  EXPECT_EQ(m.get_i64("negative").value(), -5);
  EXPECT_EQ(m.get_u64("huge").value(), UINT64_MAX);
  EXPECT_EQ(m.get_f32("f64").value(), 10000.0f);
  EXPECT_EQ(m.get_f32("u8").value(), 200.0f);
  EXPECT_EQ(m.get_f32("negative").value(), -5.0f);
  EXPECT_TRUE(m.get_bool("yes").value());
  EXPECT_EQ(m.get_string("text").value(), "abc");
  EXPECT_EQ(m.get_u64_or("absent", 7).value(), 7u);
  EXPECT_EQ(m.get_string_or("absent", "x").value(), "x");

  EXPECT_THAT(m.get_u64("negative").error().message, HasSubstr("'negative' is i32 -5, expected an unsigned integer"));
  EXPECT_THAT(m.get_i64("huge").error().message, HasSubstr("u64 18446744073709551615"));
  EXPECT_FALSE(m.get_f32("huge"));
  EXPECT_FALSE(m.get_f32("f64_huge"));
  EXPECT_FALSE(m.get_u64("f32"));
  EXPECT_FALSE(m.get_u64("yes"));
  EXPECT_FALSE(m.get_bool("u8"));
  EXPECT_FALSE(m.get_u64_or("text", 7));
  EXPECT_EQ(m.get_u64("absent").error().code, ErrorCode::corrupt_file);
  EXPECT_EQ(m.get_string("u8").error().code, ErrorCode::corrupt_file);
}

TEST(Gguf, ArraysAreReadInPlace) {
  GgufWriter writer;
  const std::vector<std::string> tokens{"<s>", "", "\xe2\x96\x81Hi", std::string("a\0b", 3)};
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  writer.add_f32s("scores", std::vector<float>{0.0f, -1.5f});
  writer.add_i32s("types", std::vector<std::int32_t>{3, 1, -1});
  writer.add_u64s("big", std::vector<std::uint64_t>{1, UINT64_MAX});
  writer.add_bools("pattern", {true, false, true});
  writer.add_u32("scalar", 8);
  writer.add_strings("none", std::vector<std::string>{});
  const std::string bytes = writer.to_bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  const Metadata& m = file->metadata();
  const auto read = m.get_strings("tokenizer.ggml.tokens").value();
  EXPECT_THAT(std::vector<std::string>(read.begin(), read.end()), ::testing::ElementsAreArray(tokens));
  EXPECT_TRUE(m.get_strings("none")->begin() == m.get_strings("none")->end());
  EXPECT_THAT(m.get_floats("scores")->to_vector(), ElementsAre(0.0f, -1.5f));
  EXPECT_THAT(m.get_integers("types")->to_vector(), ElementsAre(3, 1, -1));
  EXPECT_THAT(m.get_bools("pattern")->to_vector(), ElementsAre(true, false, true));
  EXPECT_THAT(m.get_i64_per_layer("types", 3).value(), ElementsAre(3, 1, -1));
  EXPECT_THAT(m.get_i64_per_layer("scalar", 2).value(), ElementsAre(8, 8));
  EXPECT_THAT(m.get_i64_per_layer("types", 4).error().message, HasSubstr("3 values for 4 layers"));
  EXPECT_THAT(m.get_integers("big").error().message, HasSubstr("element 1 does not fit"));
  EXPECT_FALSE(m.get_integers("scores"));
  EXPECT_FALSE(m.get_strings("types"));
  EXPECT_FALSE(m.get_floats("scalar"));
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string whole = small_model().to_bytes();
  ASSERT_TRUE(parse(whole));
  // The last tensor's 20 bytes are padded to 32: the file may lose the padding, and not a byte more.
  for (std::size_t size = 0; size < whole.size() - 12; ++size) {
    const std::string cut = whole.substr(0, size);
    const auto file = parse(cut);
    ASSERT_FALSE(file) << size;
    EXPECT_EQ(file.error().code, size < 4 ? ErrorCode::not_a_model : ErrorCode::corrupt_file) << file.error().message;
  }
  const std::string cut = whole.substr(0, whole.size() - 12 - 7);
  EXPECT_THAT(parse(cut).error().message,
              HasSubstr("'output_norm.weight' (20 bytes) ends past the end of the file: 7 bytes are missing"));
}

TEST(Gguf, EveryByteFlippedIsReadOrRefused) {
  const std::string whole = small_model().to_bytes();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      const auto file = parse(damaged);
      if (file) continue;
      EXPECT_FALSE(file.error().message.empty());
    }
  }
}

TEST(Gguf, RefusesKnownTypesByName) {
  std::string bytes = small_model().to_bytes();
  const std::size_t name = bytes.find("token_embd.weight");
  bytes[name + 17 + 4 + 16] = 16;  // after the name: rank, two dimensions, type
  const auto file = parse(bytes);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::unsupported_type);
  EXPECT_THAT(file.error().message, HasSubstr("IQ2_XXS"));
}

TEST(Gguf, SaysWhatAForeignFileIs) {
  const std::pair<std::string, const char*> kFiles[] = {
      {"", "empty"},
      {std::string("\x02\0\0\0\0\0\0\0{}", 10), "safetensors"},
      {"PK\3\4................archive/data.pkl", "PyTorch"},
      {std::string("\x80\x02}q\0", 5), "pickle"},
      {"\n<!DOCTYPE HTML><html>", "HTML page"},
      {"version https://git-lfs", "git-lfs pointer"},
      {"{\"error\": \"not found\"}", "JSON"},
      {std::string(100, '\0'), "zero bytes"},
      {"hello", "text file"},
  };
  for (const auto& [bytes, what] : kFiles) {
    const auto file = parse(bytes);
    ASSERT_FALSE(file) << what;
    EXPECT_EQ(file.error().code, ErrorCode::not_a_model);
    EXPECT_THAT(file.error().message, HasSubstr(what));
    EXPECT_FALSE(file.error().hint.empty());
  }
}

class Split : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = temporary(::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path shard_path(int number, int count) const {
    return folder_ / fmt::format("m-{:05}-of-{:05}.gguf", number, count);
  }

  // Tensor t<number> holds the number's value eight times.
  void write_shard(int number, int count, int total, int says_number) {
    GgufWriter writer;
    if (number == 1) writer.add_string("general.architecture", "llama");
    writer.add_u16("split.no", static_cast<std::uint16_t>(says_number - 1));
    writer.add_u16("split.count", static_cast<std::uint16_t>(count));
    writer.add_i32("split.tensors.count", total);
    const std::vector<float> data(8, static_cast<float>(number));
    writer.add_tensor(fmt::format("t{}", number), tensor::DType::f32, shape({8}), std::as_bytes(std::span(data)));
    ASSERT_TRUE(writer.write(shard_path(number, count)));
  }

  std::filesystem::path folder_;
};

TEST_F(Split, AnyShardOpensAll) {
  for (int i = 1; i <= 3; ++i) write_shard(i, 3, 3, i);
  for (int i = 1; i <= 3; ++i) {
    const auto file = GgufFile::open(shard_path(i, 3));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->architecture(), "llama");
    ASSERT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(file->tensors()[2].shard, 2u);
    float third = 0;
    std::memcpy(&third, file->find_tensor("t3")->view.bytes.data(), sizeof third);
    EXPECT_EQ(third, 3.0f);
  }
}

TEST_F(Split, MissingShardIsNamed) {
  write_shard(1, 3, 3, 1);
  write_shard(3, 3, 3, 3);
  const auto file = GgufFile::open(shard_path(1, 3));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::not_found);
  EXPECT_THAT(file.error().message, HasSubstr("file 2 of 3 of the split model is missing: 'm-00002-of-00003.gguf'"));
}

TEST_F(Split, ForeignShardIsNamed) {
  write_shard(1, 2, 2, 1);
  write_shard(2, 2, 2, 1);
  const auto file = GgufFile::open(shard_path(1, 2));
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("'m-00002-of-00002.gguf' does not belong here"));
}

TEST_F(Split, TensorCountMustAgree) {
  write_shard(1, 2, 5, 1);
  write_shard(2, 2, 5, 2);
  EXPECT_THAT(GgufFile::open(shard_path(2, 2)).error().message,
              HasSubstr("has 2 tensors in its 2 files, its first file says 5"));
}

TEST_F(Split, DuplicateTensorAcrossShards) {
  write_shard(1, 2, 2, 1);
  write_shard(2, 2, 2, 2);
  GgufWriter writer;
  writer.add_u16("split.no", 1);
  writer.add_u16("split.count", 2);
  writer.add_tensor("t1", tensor::DType::f32, shape({8}), value_bytes(8));
  ASSERT_TRUE(writer.write(shard_path(2, 2)));
  EXPECT_THAT(GgufFile::open(shard_path(1, 2)).error().message, HasSubstr("'t1' occurs twice"));
}

TEST_F(Split, RenamedShardIsRefused) {
  write_shard(1, 2, 2, 1);
  std::filesystem::rename(shard_path(1, 2), folder_ / "renamed.gguf");
  EXPECT_THAT(GgufFile::open(folder_ / "renamed.gguf").error().message, HasSubstr("one file of a split model"));
}

TEST(WeightStoreTest, ChecksShapesAndRemembersWhatWasTaken) {
  const std::string bytes = small_model().to_bytes();
  WeightStore store(parse(bytes).value());
  const auto embedding = store.require("token_embd.weight", shape({4, 8}), "llama.embedding_length");
  ASSERT_TRUE(embedding);
  EXPECT_EQ((*embedding)->columns(), 8);
  EXPECT_THAT(store.unused(), ElementsAre("output_norm.weight"));
  EXPECT_EQ(store.taken_bytes(), 128u);

  const auto wrong = store.require("output_norm.weight", shape({8}), "llama.embedding_length");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            "tensor 'output_norm.weight' has the shape [5], expected [8] (implied by llama.embedding_length)");
  EXPECT_TRUE(store.require("output_norm.weight", shape({1, 1, 5}), "").has_value());  // outer ones count for nothing
  const auto missing = store.require("output.weight", shape({4, 8}), "llama.vocab_size");
  EXPECT_EQ(missing.error().code, ErrorCode::corrupt_file);
  EXPECT_EQ(store.optional("output.weight", shape({4, 8}), "").value(), nullptr);
  EXPECT_EQ(store.find("output.weight"), nullptr);
}

TEST(WeightStoreTest, ReleasesNothingOfAFile) {
  const std::string bytes = small_model().to_bytes();
  const WeightStore store(parse(bytes).value());
  store.release_tensor("token_embd.weight");
  store.release_tensor("no such tensor");
  EXPECT_EQ(store.find("token_embd.weight")->row(0)[4], value_bytes(2)[4]);
}

// Only what somebody took, and the same bytes.
TEST(WeightStoreTest, VectorsAreHeldApartFromTheFile) {
  const std::filesystem::path path =
      std::filesystem::path(ADZE_TEST_DATA) / "oracles/llama-gqa-rope3/llama-gqa-rope3-Q4_1.gguf";
  WeightStore store = WeightStore::open(path).value();
  const auto in_file = [&](std::string_view name) {
    const std::span<const std::byte> file = store.gguf().shards().front().bytes;
    const std::byte* at = store.find(name)->bytes.data();
    return at >= file.data() && at < file.data() + file.size();
  };
  const tensor::TensorView norm = *store.find("output_norm.weight");
  ASSERT_TRUE(store.require("output_norm.weight", norm.shape, "a test"));
  store.hold_vectors();
  EXPECT_FALSE(in_file("output_norm.weight"));
  EXPECT_TRUE(in_file("blk.0.attn_norm.weight"));
  EXPECT_TRUE(std::ranges::equal(store.find("output_norm.weight")->bytes, norm.bytes));
  std::vector<std::byte> read(norm.bytes.size());
  ASSERT_TRUE(store.read(norm.bytes.data(), read));
  EXPECT_TRUE(std::ranges::equal(read, norm.bytes));
  store.release_all();
  EXPECT_TRUE(std::ranges::equal(store.find("output_norm.weight")->bytes, norm.bytes));
  EXPECT_FALSE(store.read(store.find("output_norm.weight")->bytes.data(), read));
}

// 32 values are one block, however they are shaped; 32 rows of one value are none.
TEST(WeightStoreTest, RowsOfBlocksAreNotCutAnew) {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_tensor("blk.0.ffn_down.weight", tensor::DType::q8_0, shape({32}), value_bytes(64).first(34));
  const std::string bytes = writer.to_bytes();
  WeightStore store(parse(bytes).value());
  const auto wrong = store.require("blk.0.ffn_down.weight", shape({32, 1}), "llama.feed_forward_length");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(wrong.error().message, HasSubstr("has the shape [32], expected [32, 1]"));
  EXPECT_TRUE(store.require("blk.0.ffn_down.weight", shape({1, 32}), "").has_value());
}

TEST(WeightStoreTest, DigestFollowsTheSource) {
  const auto path = temporary("adze_digest.gguf");
  ASSERT_TRUE(small_model().write(path));
  const Digest first = WeightStore::open(path)->source_digest();
  EXPECT_EQ(first, WeightStore::open(path)->source_digest());
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_NE(first, WeightStore::open(path)->source_digest());
  std::filesystem::remove(path);
}

// Real files, where the environment names a folder of them.
TEST(Gguf, OpensRealFiles) {
  std::size_t opened = 0;
  for (const char* variable : {"ADZE_TEST_ORACLES", "ADZE_TEST_VOCABS", "ADZE_TEST_TINY_MODELS"}) {
    const char* folder = std::getenv(variable);
    if (folder == nullptr) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".gguf") continue;
      const auto file = GgufFile::open(entry.path());
      ASSERT_TRUE(file) << file.error().message;
      EXPECT_FALSE(file->architecture().empty());
      ++opened;
    }
  }
  if (opened == 0) GTEST_SKIP() << "set ADZE_TEST_ORACLES, ADZE_TEST_VOCABS or ADZE_TEST_TINY_MODELS";
}

}  // namespace
}  // namespace adze::format
