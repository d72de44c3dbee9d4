#include "base/file.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace adze {
namespace {

std::filesystem::path temporary(const char* name) { return std::filesystem::path(::testing::TempDir()) / name; }

TEST(File, WritesAtomicallyAndReadsBack) {
  const auto path = temporary("adze_file_test.bin");
  ASSERT_TRUE(write_file_atomic(path, std::string_view("hello\0world", 11)));
  EXPECT_EQ(read_file(path, 100).value(), std::string("hello\0world", 11));
  EXPECT_EQ(read_file(path, 10).error().code, ErrorCode::limit_exceeded);
  for (const bool map : {true, false}) {
    auto file = MappedFile::open(path, {.map = map});
    ASSERT_TRUE(file);
    EXPECT_EQ(file->bytes().size(), 11u);
    MappedFile moved = std::move(*file);
    EXPECT_EQ(static_cast<char>(moved.bytes()[6]), 'w');
  }
  std::filesystem::remove(path);
}

TEST(File, NamesWhatIsMissing) {
  const auto missing = MappedFile::open(temporary("adze_no_such_file"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find("adze_no_such_file"), std::string::npos);
  EXPECT_EQ(MappedFile::open(::testing::TempDir()).error().code, ErrorCode::invalid_argument);
}

TEST(File, FailedWriteLeavesNothing) {
  const auto path = temporary("adze_no_dir") / "x" / "file";
  EXPECT_FALSE(write_file_atomic(path, "x"));
  EXPECT_FALSE(std::filesystem::exists(path.parent_path()));
  // A full disk, where the system has one to offer.
  if (std::filesystem::exists("/dev/full")) {
    std::ofstream full("/dev/full");
    full << "x" << std::flush;
    EXPECT_FALSE(full.good());
  }
}

}  // namespace
}  // namespace adze
