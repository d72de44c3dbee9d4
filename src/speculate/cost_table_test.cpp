#include "speculate/cost_table.hpp"

#include <gtest/gtest.h>

#include <array>

namespace adze::speculate {
namespace {

constexpr std::array<CostPoint, 3> kPoints{
    {{.rows = 4, .near = 8, .far = 20}, {.rows = 1, .near = 5, .far = 8}, {.rows = 16, .near = 32, .far = 92}}};

TEST(CostTable, ReadsBetweenItsPoints) {
  const CostTable table = CostTable::from_points(kPoints, 1000);
  EXPECT_EQ(table.of(1), 5);
  EXPECT_EQ(table.of(2), 6);
  EXPECT_EQ(table.of(4), 8);
  EXPECT_EQ(table.of(10), 20);
  EXPECT_EQ(table.of(16), 32);
  EXPECT_EQ(table.of(20), 40);  // as between the last two
  EXPECT_EQ(table.of(0), 5);
}

TEST(CostTable, AttentionGrowsWithTheContext) {
  const CostTable table = CostTable::from_points(kPoints, 1000);
  EXPECT_EQ(table.of(1, 1000), 8);
  EXPECT_EQ(table.of(1, 500), 6.5);
  EXPECT_EQ(table.of(4, 2000), 32);
  EXPECT_EQ(CostTable::from_points(kPoints, 0).of(4, 2000), 8);  // nobody knows behind what it was measured
}

TEST(CostTable, NeverFallsWithRowsNorContext) {
  const std::array<CostPoint, 5> noisy{{{.rows = 1, .near = 5, .far = 4},
                                        {.rows = 2, .near = 4.9, .far = 9},
                                        {.rows = 4, .near = 6, .far = 6.5},
                                        {.rows = 8, .near = 5.5, .far = 20},
                                        {.rows = 8, .near = 50, .far = 200}}};
  for (const CostTable& table : {CostTable::from_points(noisy, 1000), CostTable::built_in()}) {
    for (int rows = 1; rows < 40; ++rows) {
      EXPECT_GT(table.of(rows), 0);
      EXPECT_GE(table.of(rows + 1), table.of(rows));
      EXPECT_GE(table.of(rows + 1, 1500), table.of(rows, 1500));
      EXPECT_GE(table.of(rows, 1500), table.of(rows, 700));
    }
  }
}

TEST(CostTable, WithoutAMeasurementItIsTheBuiltInOne) {
  const std::array<CostPoint, 2> useless{{{.rows = 1, .near = 0, .far = 3}, {.rows = 0, .near = 4, .far = 5}}};
  for (const CostTable& table : {CostTable::from_points({}, 0), CostTable::from_points(useless, 100)}) {
    EXPECT_EQ(table.of(3), CostTable::built_in().of(3));
    EXPECT_EQ(table.of(3, 4096), CostTable::built_in().of(3, 4096));
  }
  const std::array<CostPoint, 1> one{{{.rows = 1, .near = 3}}};
  EXPECT_EQ(CostTable::from_points(one, 0).of(9), 3);
}

}  // namespace
}  // namespace adze::speculate
