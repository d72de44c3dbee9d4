// Which kernel sets a processor gets, and how one is chosen by name.
#include "backend/cpu/cpu_features.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

namespace adze::cpu {
namespace {

std::string names() {
  std::string all;
  for (const KernelTable* table : available_tables()) all += (all.empty() ? "" : ", ") + std::string(table->name);
  return all;
}

TEST(KernelSets, FollowTheProcessorsFeatures) {
  const std::vector<std::string> features = describe_cpu().features;
  const std::pair<const char*, std::vector<std::string>> kNeeds[] = {
      {"avx512_vnni", {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}},
      {"avx512", {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"}},
      {"avx_vnni", {"avx2", "fma", "f16c", "avxvnni"}},
      {"avx2", {"avx2", "fma", "f16c"}},
      {"neon_dotprod", {"dotprod"}}};
  std::string expected;
  for (const auto& [set, needs] : kNeeds) {
    const auto has = [&](const std::string& feature) { return std::ranges::find(features, feature) != features.end(); };
    if (std::ranges::all_of(needs, has)) expected += std::string(set) + ", ";
  }
  EXPECT_EQ(names(), expected + "scalar");  // best first, and the one that runs anywhere is always there
}

TEST(KernelSets, AreThoseOfTheEmulatedProcessor) {
  const char* expected = std::getenv("ADZE_TEST_KERNEL_SETS");
  if (expected == nullptr) GTEST_SKIP() << "ADZE_TEST_KERNEL_SETS is not set: this processor was not made to order";
  EXPECT_EQ(names(), expected);
}

TEST(KernelSets, AreChosenByName) {
  for (const KernelTable* table : available_tables()) {
    const auto chosen = choose_table(table->name);
    ASSERT_TRUE(chosen);
    EXPECT_EQ(*chosen, table);
  }
  EXPECT_EQ(choose_table("").value(), available_tables().front());
  const auto unknown = choose_table("sse9");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "no kernels named 'sse9' run on this machine");
  EXPECT_EQ(unknown.error().hint, "it may be one of: " + names());
}

}  // namespace
}  // namespace adze::cpu
