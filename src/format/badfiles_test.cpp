// Every faulty file of tests/data/badfiles is refused, quickly, with a sentence that says what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>

#include "format/gguf.hpp"

namespace adze::format {
namespace {

struct BadFile {
  const char* name;
  ErrorCode code;
  const char* says;  // a part of the message
};

constexpr BadFile kBadFiles[] = {
    {"L04_array_len_2e63.gguf", ErrorCode::corrupt_file,
     "'a' claims 9223372036854775808 elements of u8, which need at least 9223372036854775808 bytes"},
    {"L05_key_len_2e63.gguf", ErrorCode::corrupt_file, "key of metadata entry 0"},
    {"L06_count_2e62_tensors.gguf", ErrorCode::corrupt_file, "claims 4611686018427387904 tensors"},
    {"L07_dim_2e42p1.gguf", ErrorCode::corrupt_file, "element count of tensor 'token_embd.weight' overflows"},
    {"L08_dim_zero.gguf", ErrorCode::corrupt_file, "dimension 0 of tensor 'token_embd.weight' is 0"},
    {"L09_dim_negative.gguf", ErrorCode::corrupt_file, "dimension 0 of tensor 'token_embd.weight' is -1"},
    {"L10_align_wrong_type.gguf", ErrorCode::corrupt_file, "'general.alignment' is i32 32, expected u32"},
    {"L11_align_3.gguf", ErrorCode::corrupt_file, "'general.alignment' is 3, expected a power of two"},
    {"L12_dup_key.gguf", ErrorCode::corrupt_file, "'general.architecture' occurs twice"},
    {"L13_dup_tensor.gguf", ErrorCode::corrupt_file, "'token_embd.weight' occurs twice"},
    {"L14_overlap.gguf", ErrorCode::corrupt_file, "'a.weight' and 'b.weight' overlap"},
    {"L15_offset_past_end.gguf", ErrorCode::corrupt_file,
     "'token_embd.weight' (32 bytes) ends past the end of the file"},
    {"L17_bad_type_id.gguf", ErrorCode::unsupported_type, "type id 4095"},
    {"L18_q8_row_not_x32.gguf", ErrorCode::corrupt_file, "33 elements, not a multiple of the 32 in a block of Q8_0"},
    {"L20_arch_not_string.gguf", ErrorCode::corrupt_file, "'general.architecture' is u32 7, expected string"},
    {"L21_empty_key.gguf", ErrorCode::corrupt_file, "empty key"},
    {"L22_tokens_as_u32.gguf", ErrorCode::corrupt_file,
     "'tokenizer.ggml.tokens' is an array of 4 u32, expected an array of string"},
    {"L24_bigendian_v3.gguf", ErrorCode::unsupported_feature, "big-endian"},
    {"L25_version_1.gguf", ErrorCode::unsupported_feature, "version 1"},
    {"L26_nested_array.gguf", ErrorCode::unsupported_feature, "'a' is an array of arrays"},
};

std::filesystem::path bad_file(const std::string& name) {
  return std::filesystem::path(ADZE_TEST_DATA) / "badfiles" / name;
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(BadFiles, AreRefusedQuicklyAndSayWhy) {
  for (const BadFile& bad : kBadFiles) {
    SCOPED_TRACE(bad.name);
    const long before = peak_kib();
    const auto start = std::chrono::steady_clock::now();
    const auto file = GgufFile::open(bad_file(bad.name));
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took, std::chrono::milliseconds(200));
    EXPECT_LT(peak_kib() - before, 16 << 10);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, bad.code) << file.error().message;
    EXPECT_THAT(file.error().message, ::testing::HasSubstr(bad.says));
    EXPECT_THAT(file.error().message, ::testing::HasSubstr(bad.name));
  }
}

TEST(BadFiles, EveryGgufOfTheFolderIsListed) {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(bad_file(""))) {
    if (entry.path().extension() == ".gguf") ++found;
  }
  EXPECT_EQ(found, std::size(kBadFiles) + 1);  // and L19, which is readable
}

TEST(BadFiles, UnknownArchitectureIsReadable) {
  const auto file = GgufFile::open(bad_file("L19_unknown_arch.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->architecture(), "zz-never-heard-of");
}

}  // namespace
}  // namespace adze::format
