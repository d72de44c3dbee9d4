#include "tune/samples.hpp"

#include <gtest/gtest.h>

#include <random>

namespace adze::tune {
namespace {

TEST(Samples, MedianIsTheMiddle) {
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 2.0, 3.0}), 2.5);
}

TEST(Samples, ARatioNeedsMoreThanNoise) {
  const unsigned seed = 5;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(1.0, 0.05), neighbour(1.0, 0.2);
  std::vector<double> slow, same, fast;
  for (int round = 0; round < 15; ++round) {
    const double speed = std::abs(neighbour(random));  // of the machine in this round
    slow.push_back(speed * noise(random));
    same.push_back(speed * noise(random));
    fast.push_back(speed * noise(random) / 1.25);
  }
  fast[7] = 20.0;  // a time slice lost
  const Ratio faster = speed_ratio(slow, fast), equal = speed_ratio(slow, same);
  EXPECT_NEAR(faster.median, 1.25, 0.06);
  EXPECT_TRUE(faster.exceeds(1.1));
  EXPECT_NEAR(equal.median, 1.0, 0.06);
  EXPECT_FALSE(equal.exceeds(1.02));
}

TEST(Samples, TwoRoundsProveNothing) {
  const Ratio ratio = speed_ratio({2.0, 2.0}, {1.0, 1.0});
  EXPECT_EQ(ratio.median, 2.0);
  EXPECT_FALSE(ratio.exceeds(1.02));
}

}  // namespace
}  // namespace adze::tune
