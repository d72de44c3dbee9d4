#include "base/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
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
    moved.release(0, moved.bytes().size());  // never changes what is there
    EXPECT_EQ(static_cast<char>(moved.bytes()[6]), 'w');
  }
  std::filesystem::remove(path);
}

TEST(File, ReleasedPagesComeBack) {
  const auto path = temporary("adze_release_test.bin");
  const std::string text(100'000, 'r');
  ASSERT_TRUE(write_file_atomic(path, text));
  for (const bool map : {true, false}) {
    const auto file = MappedFile::open(path, {.map = map});
    ASSERT_TRUE(file);
    file->release(5, 90'000);
    file->release(200'000, 1);
    for (const std::byte b : file->bytes()) ASSERT_EQ(static_cast<char>(b), 'r');
  }
  std::filesystem::remove(path);
}

TEST(File, AllPagesComeBack) {
  const auto path = temporary("adze_release_all_test.bin");
  ASSERT_TRUE(write_file_atomic(path, std::string(100'000, 'r')));
  for (const bool map : {true, false}) {
    const auto file = MappedFile::open(path, {.map = map});
    ASSERT_TRUE(file);
    for (int round = 0; round < 2; ++round) {
      file->release_all();
      prefetch_pages(file->bytes().subspan(70'001, 5));
      prefetch_pages({});
      EXPECT_EQ(static_cast<char>(file->bytes()[70'003]), 'r');
    }
  }
  std::filesystem::remove(path);
}

TEST(File, BytesAreReadBesideTheMap) {
  const auto path = temporary("adze_read_beside_test.bin");
  ASSERT_TRUE(write_file_atomic(path, "0123456789"));
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const std::byte* begin = file->bytes().data();
  std::array<std::byte, 4> four{};
  ASSERT_TRUE(file->read(begin + 6, four));
  EXPECT_EQ(static_cast<char>(four[0]), '6');
  EXPECT_EQ(static_cast<char>(four[3]), '9');
  EXPECT_FALSE(file->read(begin + 7, four));  // beyond the end
  EXPECT_FALSE(file->read(begin + 20, four));
  EXPECT_FALSE(file->read(four.data(), four));  // not of this file
  EXPECT_FALSE(MappedFile::open(path, {.map = false})->read(begin, four));
  ASSERT_TRUE(write_file_atomic(path, "9876543210"));  // another file under its name
  EXPECT_FALSE(file->read(begin + 6, four));
  EXPECT_EQ(static_cast<char>(begin[6]), '6');
  std::filesystem::remove(path);
  EXPECT_FALSE(file->read(begin + 6, four));
}

TEST(File, AFileIsWrittenInAnyOrder) {
  const auto path = temporary("adze_write_at_test.bin");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file && file->write_at(5, std::as_bytes(std::span("body", 4))));
  file->write_back(0, 9, AtomicFile::WriteBack::begin);
  file->write_back(0, 9, AtomicFile::WriteBack::wait);
  ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span("head", 4))) && file->commit());
  EXPECT_EQ(read_file(path, 100).value(), std::string("head\0body", 9));
  std::filesystem::remove(path);
}

TEST(File, NamesWhatIsMissing) {
  const auto missing = MappedFile::open(temporary("adze_no_such_file"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find("adze_no_such_file"), std::string::npos);
  EXPECT_EQ(MappedFile::open(::testing::TempDir()).error().code, ErrorCode::invalid_argument);
}

TEST(File, AtomicFileIsAllOrNothing) {
  const auto folder = temporary("adze_atomic");
  std::filesystem::create_directories(folder);
  const auto path = folder / "model.bin";
  ASSERT_TRUE(write_file_atomic(path, "old"));
  {
    auto abandoned = AtomicFile::create(path);
    ASSERT_TRUE(abandoned && abandoned->write("half"));
    // Where files can be without a name, a process that is killed here leaves none.
    const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_WRONLY, 0600);
    if (unnamed >= 0) {
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
      ::close(unnamed);
    }
  }
  EXPECT_EQ(read_file(path, 100).value(), "old");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file && file->write("new ") && file->write("bytes"));
  EXPECT_EQ(file->written(), 9u);
  EXPECT_EQ(read_file(path, 100).value(), "old");
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(read_file(path, 100).value(), "new bytes");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

TEST(File, PermissionsAreTheUmasksOrThoseOfTheFileReplaced) {
  const auto path = temporary("adze_permissions");
  std::filesystem::remove(path);
  const mode_t before = ::umask(077);
  ASSERT_TRUE(write_file_atomic(path, "new"));
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms{0600});
  std::filesystem::permissions(path, std::filesystem::perms{0640});
  ASSERT_TRUE(write_file_atomic(path, "newer"));
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms{0640});
  std::filesystem::remove(path);
}

TEST(File, PipesAndFoldersAreNotReplaced) {
  const auto pipe = temporary("adze_atomic_pipe");
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::filesystem::path& path : {pipe, std::filesystem::path(::testing::TempDir())}) {
    const Status status = write_file_atomic(path, "x");
    ASSERT_FALSE(status) << path;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(MappedFile::open(pipe).error().code, ErrorCode::invalid_argument);  // and does not wait for a writer
  std::filesystem::remove(pipe);
}

TEST(File, ALinkKeepsNamingWhatIsReplaced) {
  const auto folder = temporary("adze_link_test");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file_atomic(folder / "real", "old"));
  std::filesystem::create_symlink("real", folder / "link");
  ASSERT_TRUE(write_file_atomic(folder / "link", "new"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real", 100).value(), "new");
  std::filesystem::remove_all(folder);
}

TEST(File, ALinkInThePlaceOfAFileOfOursIsReplacedItself) {
  const auto folder = temporary("adze_own_link_test");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file_atomic(folder / "theirs", "old"));
  std::filesystem::permissions(folder / "theirs", std::filesystem::perms::none);
  std::filesystem::create_symlink("theirs", folder / "ours");
  ASSERT_TRUE(write_file_atomic(folder / "ours", "new", AtomicFile::Replace::name));
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "ours"));
  EXPECT_EQ(read_file(folder / "ours", 100).value(), "new");
  EXPECT_NE(std::filesystem::status(folder / "ours").permissions(), std::filesystem::perms::none);
  std::filesystem::permissions(folder / "theirs", std::filesystem::perms::owner_read);
  EXPECT_EQ(read_file(folder / "theirs", 100).value(), "old");
  std::filesystem::remove_all(folder);
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

TEST(File, AFileLargerThanItsDiskIsRefusedBeforeItIsWritten) {
  EXPECT_TRUE(require_free_space(temporary("adze_small"), 1));
  EXPECT_TRUE(require_free_space("adze_small", 1));
  const Status status = require_free_space(temporary("adze_huge"), std::uint64_t{1} << 62);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::disk_full);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("adze_huge' needs 4611686018427.4 MB and its disk has"));
}

TEST(ReadModelFile, TakesFilesOnly) {
  EXPECT_EQ(read_model_file(::testing::TempDir(), 10).error().code, ErrorCode::corrupt_file);
  EXPECT_EQ(read_model_file(::testing::TempDir() + "/adze_absent", 10).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace adze
