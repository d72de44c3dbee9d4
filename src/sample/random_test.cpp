#include "sample/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace adze::sample {
namespace {

// The published sequence of SplitMix64 for the seed 1234567 (Vigna's splitmix64.c).
TEST(Random, IsSplitMix64) {
  const std::uint64_t expected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u};
  for (std::uint64_t n = 0; n < 3; ++n) EXPECT_EQ(mix64(1234567u + (n + 1) * kGolden), expected[n]);
}

TEST(Random, IsAFunctionOfItsCounter) {
  EXPECT_EQ(PositionNoise(1, 2).bits(3), PositionNoise(1, 2).bits(3));
  EXPECT_NE(PositionNoise(1, 2).bits(3), PositionNoise(1, 2).bits(4));
  EXPECT_NE(PositionNoise(1, 2).bits(3), PositionNoise(1, 3).bits(3));
  EXPECT_NE(PositionNoise(1, 2).bits(3), PositionNoise(2, 2).bits(3));
  // Neighbouring counters must not be shifted copies of each other.
  EXPECT_NE(PositionNoise(1, 2).bits(4), PositionNoise(1, 3).bits(3));
}

TEST(Random, EveryBitIsFair) {
  std::vector<int> ones(64);
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t bits = PositionNoise(42, static_cast<std::uint64_t>(i / 10)).bits(i % 10);
    for (int b = 0; b < 64; ++b) ones[static_cast<std::size_t>(b)] += static_cast<int>((bits >> b) & 1);
  }
  for (const int count : ones) EXPECT_NEAR(count, kDraws / 2.0, 5 * std::sqrt(kDraws) / 2);
}

// Mean of a Gumbel variable: Euler's constant; variance pi^2 / 6.
TEST(Random, GumbelHasItsMoments) {
  constexpr int kDraws = 200'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double g = gumbel(PositionNoise(7, static_cast<std::uint64_t>(i)).bits(0));
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.57721566, 0.015);
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.64493407, 0.04);
}

TEST(Random, GumbelStaysBelowItsBound) {
  for (int i = 0; i < 200'000; ++i) {
    // Also bits with many leading zeros.
    const std::uint64_t bits = PositionNoise(3, static_cast<std::uint64_t>(i)).bits(1) >> (i % 64);
    const double g = gumbel(bits);
    EXPECT_TRUE(std::isfinite(g));
    EXPECT_LE(g, static_cast<double>(gumbel_bound(bits))) << bits;
  }
  EXPECT_TRUE(std::isfinite(gumbel(~0ull)));
  EXPECT_LE(gumbel(0), static_cast<double>(gumbel_bound(0)));
  EXPECT_LE(gumbel(0x400), static_cast<double>(gumbel_bound(0x400)));
}

}  // namespace
}  // namespace adze::sample
