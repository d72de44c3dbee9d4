#include "cli/bench/report.hpp"

#include <gmock/gmock.h>

#include "cli/bench/recorded.hpp"

namespace adze::cli::bench {
namespace {

using ::testing::HasSubstr;

TEST(Cases, Labels) {
  EXPECT_EQ((Case{.kind = Case::Kind::prompt, .tokens = 512}).label(), "prompt 512");
  EXPECT_EQ((Case{.kind = Case::Kind::generate, .tokens = 64, .depth = 4096}).label(), "generate 64 at depth 4096");
  EXPECT_EQ((Case{.kind = Case::Kind::generate, .tokens = 32, .batch = 8}).label(), "generate 32 x 8");
}

TEST(Cases, Spreads) {
  const Spread odd = spread_of({3, 1, 2}), even = spread_of({4, 1, 2, 3}), one = spread_of({5});
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(one.median, 5);
}

TEST(Bounds, TheSlowerOfReadingAndMultiplying) {
  const ForwardWork work{.weight_bytes = 90, .cache_bytes = 10, .byte_products = 1000, .float_products = 50};
  const Bound read = bound_of(work, 10, {.bytes = 1000, .floats = 100});
  EXPECT_TRUE(read.by_memory);
  EXPECT_DOUBLE_EQ(read.seconds, 10);
  EXPECT_DOUBLE_EQ(read.rate(), 10);
  const Bound multiply = bound_of(work, 1000, {.bytes = 1000, .floats = 100});
  EXPECT_FALSE(multiply.by_memory);
  EXPECT_DOUBLE_EQ(multiply.seconds, 1.5);
  EXPECT_DOUBLE_EQ(multiply.rate(), 700);
}

TEST(Bounds, SharesAreOfTheSameUnit) {
  const Bound bound{.seconds = 0.5, .by_memory = true, .amount = 30e9};
  EXPECT_EQ(bound.share_text(1.0), "30.0 GB/s = 50 % of 60.0 GB/s");
  const Bound compute{.seconds = 0.5, .by_memory = false, .amount = 350e9};
  EXPECT_EQ(compute.share_text(2.0), "175.0 GMAC/s = 25 % of 700.0 GMAC/s");
}

Report sample() {
  Report report;
  report.model.name = "m";
  report.threads = 2;
  report.kernel_set = "avx2";
  report.peer = "llama.cpp 1234567";
  Row batch{.what = {.kind = Case::Kind::generate, .tokens = 32, .batch = 8},
            .rates = {100, 120, 110},
            .peer_rates = {40, 44, 42},
            .recorded = 55.0,
            .bound = {.seconds = 0.04, .by_memory = true, .amount = 2e9}};
  Row alone = batch;
  alone.what = {.kind = Case::Kind::prompt, .tokens = 100};
  alone.peer_rates.clear();
  alone.recorded.reset();
  report.rows = {batch, alone};
  return report;
}

TEST(Reports, RatiosAreToTheBetterPeer) {
  Report report = sample();
  EXPECT_DOUBLE_EQ(*report.rows[0].ratio(), 2.0);
  report.rows[0].recorded = 11;
  EXPECT_DOUBLE_EQ(*report.rows[0].ratio(), 110.0 / 42);
  report.rows[0].peer_rates.clear();
  EXPECT_DOUBLE_EQ(*report.rows[0].ratio(), 10.0);
  EXPECT_FALSE(report.rows[1].ratio());
}

TEST(Reports, SharesAreOfTheMedianForward) {
  const Report report = sample();
  EXPECT_DOUBLE_EQ(report.rows[0].share(), 110.0 / 8 * 0.04);
  EXPECT_DOUBLE_EQ(report.rows[1].share(), 110.0 / 100 * 0.04);
}

TEST(Reports, AsATable) {
  const std::string table = sample().markdown();
  EXPECT_THAT(table, HasSubstr("| m, 2 threads | Adze | of the limit | llama.cpp 1234567 |"));
  EXPECT_THAT(table,
              HasSubstr("| generate 32 x 8 | 100.0 / 110.0 / 120.0 | 55 % | 40.0 / 42.0 / 44.0 | 55.0 | 2.00 |\n"));
  EXPECT_THAT(table, HasSubstr("| prompt 100 | 100.0 / 110.0 / 120.0 | 4 % |  | | |\n"));
  EXPECT_THAT(sample().text(), HasSubstr("27.5 GB/s = 55 % of 50.0 GB/s"));
}

TEST(Reports, AsJson) {
  const std::string json = sample().json();
  EXPECT_THAT(json, HasSubstr(R"("case":"generate 32 x 8")"));
  EXPECT_THAT(json, HasSubstr(R"("ratio":2)"));
}

TEST(Recorded, KnowsItsModelsOnItsMachineOnly) {
  ModelInfo model;
  model.architecture = "llama";
  model.parameters = 134'515'008;
  model.weight_bytes = 96'500'000;
  const Case deep{.kind = Case::Kind::generate, .tokens = 32, .depth = 4096};
  const auto found = find_recorded(model, deep, 2, "avx512_vnni");
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->tokens_per_second, 33.3);
  EXPECT_TRUE(found->by_memory);
  // Half the bandwidth of that day: half the rate.
  EXPECT_DOUBLE_EQ(found->scaled(29.4e9, {.bytes = 1, .floats = 1}), 33.3 / 2);
  const Case prompt{.kind = Case::Kind::prompt, .tokens = 512};
  EXPECT_DOUBLE_EQ(find_recorded(model, prompt, 2, "avx512_vnni")->scaled(1, {.bytes = 2 * 707e9, .floats = 1}), 2116);
  EXPECT_FALSE(find_recorded(model, deep, 1, "avx512_vnni"));
  EXPECT_FALSE(find_recorded(model, deep, 2, "avx2"));
  EXPECT_FALSE(find_recorded(model, {.kind = Case::Kind::prompt, .tokens = 100}, 2, "avx512_vnni"));
  model.weight_bytes = 110'000'000;
  EXPECT_FALSE(find_recorded(model, deep, 2, "avx512_vnni"));
}

}  // namespace
}  // namespace adze::cli::bench
