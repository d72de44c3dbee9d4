// Each limit of base/limits.hpp that a file can reach, reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/limits.hpp"
#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"
#include "format/json.hpp"
#include "format/safetensors.hpp"
#include "format/safetensors_folder.hpp"

namespace adze::format {
namespace {

Error refusal(const std::string& bytes) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "memory.gguf");
  return file ? Error{} : file.error();
}

void expect_limit(const Error& error, std::uint64_t limit) {
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded) << error.message;
  EXPECT_THAT(error.message, ::testing::HasSubstr(fmt::format("more than the limit of {}", limit)));
}

TEST(FormatLimits, MetadataEntries) {
  GgufWriter writer;
  for (std::uint64_t i = 0; i <= limits::kGgufMaxMetadataEntries; ++i) writer.add_u8(fmt::format("k{}", i), 0);
  expect_limit(refusal(writer.to_bytes()), limits::kGgufMaxMetadataEntries);
}

TEST(FormatLimits, Tensors) {
  std::string bytes = GgufWriter().to_bytes();
  const std::uint64_t count = limits::kGgufMaxTensors + 1;
  std::memcpy(bytes.data() + 8, &count, sizeof count);
  bytes.resize(32 + count * 33);  // as many records as there could be
  expect_limit(refusal(bytes), limits::kGgufMaxTensors);
}

TEST(FormatLimits, KeyAndStringBytes) {
  GgufWriter key;
  key.add_u8(std::string(limits::kGgufMaxKeyBytes + 1, 'k'), 0);
  expect_limit(refusal(key.to_bytes()), limits::kGgufMaxKeyBytes);
  GgufWriter text;
  text.add_string("k", std::string(limits::kGgufMaxStringBytes + 1, 's'));
  expect_limit(refusal(text.to_bytes()), limits::kGgufMaxStringBytes);
}

TEST(FormatLimits, Dimensions) {
  const float value = 0;
  GgufWriter writer;
  writer.add_tensor("t", tensor::DType::f32, {{1, 1, 1, 1}, 4}, std::as_bytes(std::span(&value, 1)));
  std::string bytes = writer.to_bytes();
  ASSERT_EQ(refusal(bytes).message, "");
  bytes[24 + 8 + 1] = 5;  // the rank follows the header and the one-letter name
  EXPECT_THAT(refusal(bytes).message, ::testing::HasSubstr("5 dimensions, more than 4"));
}

TEST(FormatLimits, Splits) {
  const auto path =
      std::filesystem::path(::testing::TempDir()) / fmt::format("adze-00001-of-{:05}.gguf", limits::kGgufMaxSplits + 1);
  GgufWriter writer;
  writer.add_u16("split.no", 0);
  writer.add_u16("split.count", static_cast<std::uint16_t>(limits::kGgufMaxSplits + 1));
  ASSERT_TRUE(writer.write(path));
  expect_limit(GgufFile::open(path).error(), limits::kGgufMaxSplits);
  std::filesystem::remove(path);
}

TEST(FormatLimits, SafetensorsHeader) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "adze_limit.safetensors";
  const std::uint64_t length = limits::kSafetensorsMaxHeaderBytes + 1;
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), sizeof length) << "{}";
  std::filesystem::resize_file(path, length + 8);  // sparse
  expect_limit(SafetensorsFile::open(path).error(), limits::kSafetensorsMaxHeaderBytes);
  std::filesystem::remove(path);
}

TEST(FormatLimits, SafetensorsIndex) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "adze_limit_folder";
  std::filesystem::create_directories(folder);
  const auto write_index = [&](const std::string& text) {
    std::ofstream(folder / "model.safetensors.index.json", std::ios::binary) << text;
  };
  std::string map;
  for (std::size_t i = 0; i <= limits::kSafetensorsMaxShards; ++i) {
    map += fmt::format("{}\"t{}\":\"{}.safetensors\"", i == 0 ? "" : ",", i, i);
  }
  write_index("{\"weight_map\":{" + map + "}}");
  expect_limit(SafetensorsFolder::open(folder).error(), limits::kSafetensorsMaxShards);
  write_index("{");
  std::filesystem::resize_file(folder / "model.safetensors.index.json", limits::kSafetensorsMaxIndexBytes + 1);
  EXPECT_EQ(SafetensorsFolder::open(folder).error().code, ErrorCode::limit_exceeded);
  std::filesystem::remove_all(folder);
}

TEST(FormatLimits, JsonDepth) {
  const auto nested = [](int depth) {
    const auto n = static_cast<std::size_t>(depth);
    return JsonObject::parse("{\"a\":" + std::string(n, '[') + std::string(n, ']') + "}", "a.json");
  };
  EXPECT_TRUE(nested(limits::kJsonMaxDepth - 1));
  EXPECT_THAT(nested(limits::kJsonMaxDepth + 1).error().message, ::testing::HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace adze::format
