#include "engine/memory.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "backend/backend.hpp"

namespace adze::engine {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

// A made-up /proc and /sys.
class FakeRoot {
 public:
  FakeRoot() : root_(std::filesystem::path(::testing::TempDir()) / "adze_memory_test") {
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1024 kB\nMemAvailable:    4194304 kB\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(root_); }
  void write(const std::filesystem::path& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const std::filesystem::path& path() const { return root_; }

 private:
  std::filesystem::path root_;
};

TEST(Memory, ReadsTheMachine) {
  const FakeRoot root;
  EXPECT_EQ(available_memory(root.path()), 4096 * kMiB);
  EXPECT_GT(available_memory(), kMiB);
}

TEST(Memory, ObeysControlGroups) {
  const FakeRoot root;
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root.path()), 4096 * kMiB);
  root.write("sys/fs/cgroup/a/memory.max", std::to_string(1000 * kMiB));
  root.write("sys/fs/cgroup/a/memory.current", std::to_string(700 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 300 * kMiB);
  root.write("sys/fs/cgroup/a/memory.stat",
             "anon 5\nactive_file " + std::to_string(100 * kMiB) + "\ninactive_file " + std::to_string(50 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 450 * kMiB);
  root.write("sys/fs/cgroup/a/memory.current", std::to_string(5000 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 0u);
}

TEST(Memory, ObeysVersionOneGroups) {
  const FakeRoot root;
  root.write("proc/self/cgroup", "3:cpu,cpuacct:/x\n5:memory:/docker/12\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(512 * kMiB));
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(112 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 400 * kMiB);
}

TEST(Memory, FitsTheContext) {
  const MemoryNeed need{.weights = 100 * kMiB, .scratch = 20 * kMiB, .bytes_per_page = kMiB};
  EXPECT_EQ(fit_context(need, 64 * 80, false, 200 * kMiB).value(), 64 * 80);
  EXPECT_EQ(fit_context(need, 64 * 1000, true, 200 * kMiB).value(), 64 * 80);
  const auto refused = fit_context(need, 1'000'000, false, 200 * kMiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(refused.error().message,
            "a context of 1000000 tokens needs 15.4 GiB (100 MiB of weights, 15.3 GiB of KV cache, 20.0 MiB of working "
            "memory), but 200 MiB is available");
  EXPECT_EQ(refused.error().hint, "the largest context that fits is 5120");
  for (const bool may_shrink : {false, true}) {
    const auto none = fit_context(need, 64, may_shrink, 120 * kMiB);
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().hint.find("smaller model"), std::string::npos);
  }
}

// 10 pages for the windows of sliding layers, however long the context.
TEST(Memory, FitsTheContextOfSlidingLayers) {
  const MemoryNeed need{.bytes_per_page = kMiB, .bytes_per_sliding_page = 3 * kMiB, .max_sliding_pages = 10};
  EXPECT_EQ(fit_context(need, 64 * 1000, false, 1030 * kMiB).value(), 64 * 1000);
  EXPECT_EQ(fit_context(need, 64 * 1000, true, 1029 * kMiB).value(), 64 * 999);
  EXPECT_EQ(fit_context(need, 64 * 1000, true, 43 * kMiB).value(), 64 * 13);
  EXPECT_EQ(fit_context(need, 64 * 1000, true, 40 * kMiB).value(), 64 * 10);
  EXPECT_EQ(fit_context(need, 64 * 1000, true, 39 * kMiB).value(), 64 * 9);
  EXPECT_FALSE(fit_context(need, 64 * 1000, true, 3 * kMiB));
  const MemoryNeed only_sliding{.bytes_per_sliding_page = kMiB, .max_sliding_pages = 10};
  EXPECT_EQ(fit_context(only_sliding, 64 * 1000, true, 10 * kMiB).value(), 64 * 1000);
  EXPECT_EQ(fit_context(only_sliding, 64 * 1000, true, 9 * kMiB).value(), 64 * 9);
}

TEST(Memory, PagesOfWindows) {
  ops::Plan plan;
  plan.kv_layers = {{1, 64, 0}, {1, 64, 500}, {1, 64, 100}};
  backend::PrepareOptions prepare{.max_batch_rows = 96};
  set_pages(plan, 100'000, 2, prepare);
  EXPECT_EQ(prepare.max_pages, 1563);
  // 500 + 96 positions lie in 10 pages, 11 where they begin inside one; of 2 texts and 8 that are kept
  EXPECT_EQ(prepare.max_sliding_pages, 11 * 10);
  set_pages(plan, 640, 2, prepare);
  EXPECT_EQ(prepare.max_sliding_pages, 10);
  plan.kv_layers.resize(1);
  set_pages(plan, 640, 2, prepare);
  EXPECT_EQ(prepare.max_sliding_pages, 0);
}

TEST(Memory, FormatsBytes) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(5 * 1024), "5.0 KiB");
  EXPECT_EQ(format_bytes(312 * kMiB), "312 MiB");
  EXPECT_EQ(format_bytes(1536 * kMiB), "1.5 GiB");
}

}  // namespace
}  // namespace adze::engine
