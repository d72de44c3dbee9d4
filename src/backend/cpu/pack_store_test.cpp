#include "backend/cpu/pack_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "backend/pack_directory.hpp"

namespace adze::cpu {
namespace {

namespace fs = std::filesystem;
using backend::PackState;

constexpr std::uint64_t kBudget = 1u << 30;

class PackStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 31 + i / 251);
  }
  void TearDown() override { fs::remove_all(folder_); }

  backend::PackOptions options() {
    return {.directory = folder_,
            .budget_bytes = kBudget,
            .source = {1, 2},
            .model = "synthetic",
            .files = {},
            .release = {}};
  }

  // Weights of 5 MiB, 1 MiB and one group; a packed byte is the source's byte, turned over.
  std::vector<PackItem> items() {
    const std::span all(source_);
    return {item("a", all.first(5u << 20), 1u << 16), item("b", all.subspan(5u << 20, 1u << 20), 64),
            item("c", all.subspan(6u << 20), 3u << 19)};
  }
  PackItem item(const char* name, std::span<const std::byte> source, std::uint64_t group_bytes) {
    return {.name = name,
            .type = "bytes",
            .sources = {source},
            .group_bytes = group_bytes,
            .groups = static_cast<int>(source.size() / group_bytes),
            .pack = [this, source, group_bytes](int group, std::byte* out) {
              EXPECT_EQ(reinterpret_cast<std::uintptr_t>(out) % 64, 0u);
              groups_packed_.fetch_add(1);
              const std::byte* from = source.data() + static_cast<std::size_t>(group) * group_bytes;
              for (std::uint64_t i = 0; i < group_bytes; ++i) out[i] = ~from[i];
            }};
  }

  static void finish(PackStore& store) {
    store.wait([](std::uint64_t, std::uint64_t) { return true; });
  }
  void expect_packed(const PackStore& store) {
    ASSERT_TRUE(store.ready());
    const std::vector<PackItem> all = items();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::byte* packed = store.packed(i);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packed) % 64, 0u);
      const std::span<const std::byte> source = all[i].sources.front();
      std::size_t wrong = 0;
      for (std::size_t b = 0; b < source.size(); ++b) wrong += packed[b] != ~source[b];
      EXPECT_EQ(wrong, 0u) << all[i].name;
    }
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder_)) {
      for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    }
    return found;
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / "adze_pack_store_test";
  std::vector<std::byte> source_ = std::vector<std::byte>((6u << 20) + (3u << 19));
  std::atomic<int> groups_packed_{0};
};

TEST_F(PackStoreTest, PacksOnceAndMapsAfter) {
  {
    PackStore store(options(), "test-v1", items());
    finish(store);
    expect_packed(store);
    const backend::PackReport report = store.report();
    EXPECT_EQ(report.state, PackState::ready);
    EXPECT_FALSE(report.found);
    EXPECT_EQ(report.done_bytes, source_.size());
    EXPECT_EQ(store.packed_bytes(), source_.size());
    EXPECT_EQ(files(), std::vector{report.path});
    EXPECT_TRUE(backend::verify_pack(report.path, [] { return true; }));
  }
  const int packed = groups_packed_.load();
  PackStore store(options(), "test-v1", items());
  expect_packed(store);
  EXPECT_TRUE(store.report().found);
  EXPECT_EQ(groups_packed_.load(), packed);
  const auto stored = backend::list_packs(folder_).value();
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored.front().header.model, "synthetic");
  EXPECT_EQ(stored.front().header.layout, "test-v1");
}

TEST_F(PackStoreTest, ALinkInThePlaceOfAPackIsReplacedAndWhatItNamesIsNot) {
  fs::path pack;
  {
    PackStore store(options(), "test-v1", items());
    finish(store);
    pack = store.report().path;
  }
  const fs::path model = folder_ / "model";
  ASSERT_TRUE(write_file_atomic(model, "a model"));
  fs::remove(pack);
  fs::create_symlink(model, pack);
  PackStore store(options(), "test-v1", items());
  finish(store);
  expect_packed(store);
  EXPECT_FALSE(fs::is_symlink(pack));
  EXPECT_EQ(read_file(model, 100).value(), "a model");
}

TEST_F(PackStoreTest, AModelThatChangesWhileItIsPackedGivesNoPack) {
  const fs::path model = folder_ / "model";
  fs::create_directories(folder_);
  ASSERT_TRUE(write_file_atomic(model, "a model"));
  backend::PackOptions how = options();
  how.files = {backend::describe_source(model).value()};
  std::vector<PackItem> what = items();
  what[2].pack = [&, pack = what[2].pack](int group, std::byte* out) {
    pack(group, out);
    EXPECT_TRUE(write_file_atomic(model, "another one"));
  };
  PackStore store(how, "test-v1", std::move(what));
  finish(store);
  EXPECT_FALSE(store.ready());
  ASSERT_TRUE(store.report().error);
  EXPECT_NE(store.report().error->message.find("was changed while its weights were packed"), std::string::npos);
  EXPECT_EQ(files(), std::vector{model});
}

// One file for each set of weights, layout and shape; also where only a byte in the middle tells two sources apart.
TEST_F(PackStoreTest, WhatChangesThePayloadChangesTheFile) {
  const auto path = [&](const backend::PackOptions& how, const char* layout, std::vector<PackItem> what) {
    return PackStore(how, layout, std::move(what)).report().path;
  };
  const fs::path base = path(options(), "test-v1", items());
  EXPECT_EQ(path(options(), "test-v1", items()), base);
  EXPECT_NE(path(options(), "test-v2", items()), base);
  backend::PackOptions other = options();
  other.source = {1, 3};
  EXPECT_NE(path(other, "test-v1", items()), base);
  std::vector<PackItem> wider = items();
  wider[0].group_bytes *= 2;
  wider[0].groups /= 2;
  EXPECT_NE(path(options(), "test-v1", std::move(wider)), base);
  source_[(5u << 20) / 2] ^= std::byte{1};
  EXPECT_NE(path(options(), "test-v1", items()), base);
}

TEST_F(PackStoreTest, IsReadyWithoutAnybodyWaiting) {
  PackStore store(options(), "test-v1", items());
  while (store.report().state == PackState::packing) ::usleep(1000);
  expect_packed(store);
}

TEST_F(PackStoreTest, WithoutADirectoryOrWeightsNothingHappens) {
  backend::PackOptions none = options();
  none.directory.clear();
  PackStore off(none, "test-v1", items());
  PackStore empty(options(), "test-v1", {});
  for (PackStore* store : {&off, &empty}) {
    finish(*store);
    EXPECT_EQ(store->report().state, PackState::off);
    EXPECT_FALSE(store->ready());
  }
  EXPECT_TRUE(files().empty());
}

// Closed in the middle: at once, and without a trace.
TEST_F(PackStoreTest, StopsPromptlyAndLeavesNothing) {
  std::vector<PackItem> slow = items();
  std::atomic<int> calls{0};
  std::atomic<bool> closing{false};
  slow[0].pack = [&](int, std::byte*) {
    calls.fetch_add(1);
    while (!closing) ::usleep(100);
    ::usleep(20'000);
  };
  {
    PackStore store(options(), "test-v1", slow);
    while (calls.load() == 0) ::usleep(100);
    closing = true;
  }
  EXPECT_LT(calls.load(), slow[0].groups);
  EXPECT_TRUE(files().empty());
  // The same where somebody waits and has had enough.
  {
    PackStore store(options(), "test-v1", slow);
    store.wait([&](std::uint64_t done, std::uint64_t total) {
      EXPECT_EQ(total, source_.size());
      return done == 0;
    });
    EXPECT_EQ(store.report().state, PackState::packing);
  }
  EXPECT_TRUE(files().empty());
}

TEST_F(PackStoreTest, OfTwoStoresOnePacksAndBothMap) {
  PackStore one(options(), "test-v1", items()), two(options(), "test-v1", items());
  finish(one);
  finish(two);
  expect_packed(one);
  expect_packed(two);
  int groups = 0;
  for (const PackItem& item : items()) groups += item.groups;
  EXPECT_EQ(groups_packed_.load(), groups);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(PackStoreTest, AStoreThatWaitsForAnotherOnePacksWhenThatStops) {
  std::vector<PackItem> slow = items();
  std::atomic<bool> begun{false};
  slow[0].pack = [&](int, std::byte*) {
    begun = true;
    ::usleep(1000);
  };
  auto first = std::make_unique<PackStore>(options(), "test-v1", slow);
  while (!begun) ::usleep(100);
  PackStore second(options(), "test-v1", items());
  first.reset();
  finish(second);
  expect_packed(second);
}

// Whatever is wrong with a file that is there: it is made again.
TEST_F(PackStoreTest, ADamagedFileIsReplaced) {
  const fs::path path = PackStore(options(), "test-v1", items()).report().path;
  const auto store_finds = [&] {
    PackStore store(options(), "test-v1", items());
    const bool found = store.report().found;
    finish(store);
    expect_packed(store);
    return found;
  };
  EXPECT_FALSE(store_finds());
  EXPECT_TRUE(store_finds());
  const std::string good = read_file(path, 1u << 30).value();
  std::string flipped = good;
  flipped[100] ^= 1;
  for (const std::string& bad : {std::string(), good.substr(0, good.size() - 1), flipped}) {
    ASSERT_TRUE(write_file_atomic(path, bad));
    EXPECT_FALSE(store_finds());
    EXPECT_TRUE(store_finds());
  }
  // A valid pack of something else under this name.
  backend::PackOptions other = options();
  other.source = {8, 8};
  PackStore theirs(other, "test-v1", items());
  finish(theirs);
  fs::copy_file(theirs.report().path, path, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(store_finds());
}

TEST_F(PackStoreTest, AFailedWriteIsReportedAndLeavesNothing) {
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 6u << 20;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  PackStore store(options(), "test-v1", items());
  finish(store);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(store.ready());
  EXPECT_EQ(store.report().state, PackState::failed);
  EXPECT_EQ(store.report().error->code, ErrorCode::io);
  EXPECT_TRUE(files().empty());
}

TEST_F(PackStoreTest, ADirectoryThatCannotBeMadeOrABudgetTooSmallIsNoError) {
  ASSERT_TRUE(write_file_atomic(folder_, "a file where the directory should be"));
  backend::PackOptions nowhere = options();
  nowhere.directory = folder_ / "packs";
  backend::PackOptions poor = options();
  poor.directory = folder_.parent_path() / "adze_pack_store_poor";
  poor.budget_bytes = 1u << 20;
  for (const backend::PackOptions& how : {nowhere, poor}) {
    PackStore store(how, "test-v1", items());
    finish(store);
    const backend::PackReport report = store.report();
    EXPECT_EQ(report.state, PackState::failed);
    ASSERT_TRUE(report.error);
    EXPECT_FALSE(report.error->message.empty());
  }
  fs::remove_all(poor.directory);
}

}  // namespace
}  // namespace adze::cpu
