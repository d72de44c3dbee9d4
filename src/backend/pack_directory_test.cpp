#include "backend/pack_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::backend {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

class PackDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A pack of 2 MiB + 64 bytes that was used so long ago, of a model that is still what it was.
  fs::path add(std::uint64_t number, hours unused_for) {
    const fs::path source = folder_ / fmt::format("model{}.gguf", number);
    EXPECT_TRUE(write_file_atomic(source, "weights"));
    PackHeader header;
    header.key = {number, number};
    header.layout = "test";
    header.model = fmt::format("model{}", number);
    header.sources = {{source, fs::file_size(source),
                       std::chrono::nanoseconds(fs::last_write_time(source).time_since_epoch()).count()}};
    header.entries = {{.name = "w", .group_bytes = 64, .groups = 1}};
    EXPECT_TRUE(lay_out(header));
    std::string text = serialise(header);
    text.resize(header.file_bytes);
    const fs::path path = pack_path(folder_, header.key);
    EXPECT_TRUE(write_file_atomic(path, text));
    fs::last_write_time(path, fs::file_time_type::clock::now() - unused_for);
    return path;
  }

  static constexpr std::uint64_t kBytes = (2u << 20) + 64;
  const fs::path folder_ = fs::path(::testing::TempDir()) / "adze_pack_directory_test";
};

TEST_F(PackDirectory, ListsTheLastUsedFirstAndSaysWhatBecameOfTheirModels) {
  add(1, hours(3));
  const fs::path used = add(2, hours(5));
  add(3, hours(2));
  add(4, hours(4));
  ASSERT_TRUE(write_file_atomic(folder_ / "model3.gguf", "other weights"));
  fs::remove(folder_ / "model4.gguf");
  const fs::path broken = pack_path(folder_, {5, 5}), left = folder_ / (to_hex({6, 6}) + ".pack.77-0");
  ASSERT_TRUE(write_file_atomic(broken, "no pack"));
  ASSERT_TRUE(write_file_atomic(left, "half a pack"));
  fs::last_write_time(broken, fs::file_time_type::clock::now() - hours(6));
  fs::last_write_time(left, fs::file_time_type::clock::now() - hours(7));
  mark_used(used);
  const std::vector<StoredPack> packs = list_packs(folder_).value();
  ASSERT_EQ(packs.size(), 6u);
  const std::pair<const char*, PackCondition> expected[] = {
      {"model2", PackCondition::current},  {"model3", PackCondition::changed}, {"model1", PackCondition::current},
      {"model4", PackCondition::orphaned}, {"", PackCondition::damaged},       {"", PackCondition::damaged}};
  for (std::size_t i = 0; i < packs.size(); ++i) {
    EXPECT_EQ(packs[i].header.model, expected[i].first) << i;
    EXPECT_EQ(packs[i].condition, expected[i].second) << i;
  }
  EXPECT_EQ(packs[0].bytes, kBytes);
  EXPECT_TRUE(list_packs(folder_ / "nowhere")->empty());
}

TEST_F(PackDirectory, TheLongestUnusedGoesFirst) {
  const fs::path a = add(1, hours(3)), b = add(2, hours(5)), c = add(3, hours(2)), fresh = pack_path(folder_, {9, 9});
  ASSERT_TRUE(make_room(fresh, kBytes, 4 * kBytes));
  EXPECT_EQ(list_packs(folder_)->size(), 3u);
  ASSERT_TRUE(make_room(fresh, kBytes, 3 * kBytes));
  EXPECT_FALSE(fs::exists(b));
  ASSERT_TRUE(make_room(c, kBytes, 2 * kBytes));  // that is written anew: it does not count
  EXPECT_TRUE(fs::exists(a));
  ASSERT_TRUE(make_room(fresh, kBytes, kBytes));
  EXPECT_TRUE(list_packs(folder_)->empty());
}

TEST_F(PackDirectory, WhatHasNoUseGoesBeforeWhatIsOld) {
  const fs::path old = add(1, hours(30)), changed = add(2, hours(1));
  const fs::path left = folder_ / (to_hex({6, 6}) + ".pack.77-0");
  ASSERT_TRUE(write_file_atomic(left, "half a pack"));
  ASSERT_TRUE(write_file_atomic(folder_ / "model2.gguf", "other weights"));
  ASSERT_TRUE(make_room(pack_path(folder_, {9, 9}), kBytes, 2 * kBytes));
  EXPECT_TRUE(fs::exists(old));
  EXPECT_FALSE(fs::exists(changed));
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(PackDirectory, NothingIsRemovedForWhatCannotFit) {
  const fs::path a = add(1, hours(3));
  EXPECT_EQ(make_room(pack_path(folder_, {9, 9}), 3 * kBytes, 2 * kBytes).error().code, ErrorCode::limit_exceeded);
  const std::uint64_t whole_disk = fs::space(folder_).available - limits::kPackKeepFreeBytes / 2;
  const Status full = make_room(pack_path(folder_, {9, 9}), whole_disk, ~std::uint64_t{0} >> 1);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::disk_full);
  EXPECT_TRUE(fs::exists(a));
}

TEST_F(PackDirectory, OneHoldsTheLockAtATime) {
  const fs::path inner = folder_ / "a" / "b";
  auto first = PackDirectoryLock::try_lock(inner);
  ASSERT_TRUE(first && *first);
  auto second = PackDirectoryLock::try_lock(inner);
  ASSERT_TRUE(second);
  EXPECT_FALSE(*second);
  first->reset();
  EXPECT_TRUE(PackDirectoryLock::try_lock(inner).value());
  ASSERT_TRUE(write_file_atomic(folder_ / "file", "x"));
  EXPECT_FALSE(PackDirectoryLock::try_lock(folder_ / "file"));
}

}  // namespace
}  // namespace adze::backend
