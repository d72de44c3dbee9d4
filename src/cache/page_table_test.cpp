#include "cache/page_table.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace adze::cache {
namespace {

constexpr int kPage = 4;

std::vector<std::int32_t> indices(const PageTable& table) { return {table.indices().begin(), table.indices().end()}; }

TEST(PageTable, GrowsByPages) {
  PagePool pool(4);
  {
    PageTable table(pool, kPage);
    EXPECT_TRUE(table.reserve(0));
    EXPECT_EQ(pool.in_use(), 0);
    EXPECT_TRUE(table.reserve(1));
    EXPECT_EQ(table.room(), kPage);
    EXPECT_TRUE(table.reserve(4));
    EXPECT_EQ(pool.in_use(), 1);
    table.append(4);
    EXPECT_TRUE(table.reserve(5));
    EXPECT_EQ(indices(table), (std::vector<std::int32_t>{0, 1}));
    EXPECT_EQ(table.length(), 4);
  }
  EXPECT_EQ(pool.in_use(), 0);
}

TEST(PageTable, RollsBack) {
  PagePool pool(4);
  PageTable table(pool, kPage);
  ASSERT_TRUE(table.reserve(13));
  table.append(13);
  EXPECT_EQ(pool.in_use(), 4);
  table.truncate(9);
  EXPECT_EQ(pool.in_use(), 3);
  table.truncate(8);  // an edge: the third page held only position 8
  EXPECT_EQ(pool.in_use(), 2);
  table.truncate(0);
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_TRUE(table.indices().empty());
}

TEST(PageTable, RefusesWhatDoesNotFitAndKeepsWhatItHas) {
  PagePool pool(2);
  PageTable table(pool, kPage);
  ASSERT_TRUE(table.reserve(4));
  const Status full = table.reserve(9);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(full.error().message.find("2 more pages"), std::string::npos) << full.error().message;
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_TRUE(table.reserve(8));
}

TEST(PageTable, ForksShareFullPages) {
  PagePool pool(4);
  PageTable table(pool, kPage);
  ASSERT_TRUE(table.reserve(10));
  table.append(10);
  {
    PageTable fork = table.fork(9);
    EXPECT_EQ(fork.length(), 8);
    EXPECT_EQ(indices(fork), (std::vector<std::int32_t>{0, 1}));
    EXPECT_EQ(pool.in_use(), 3);
    ASSERT_TRUE(fork.reserve(9));
    EXPECT_EQ(fork.indices()[2], 3);
    table.truncate(0);
    EXPECT_EQ(pool.in_use(), 3);  // the fork's own
  }
  EXPECT_EQ(pool.in_use(), 0);
}

TEST(PageTable, Moves) {
  PagePool pool(4);
  PageTable a(pool, kPage);
  ASSERT_TRUE(a.reserve(8));
  a.append(5);
  PageTable b = std::move(a);
  EXPECT_EQ(b.length(), 5);
  EXPECT_EQ(pool.in_use(), 2);
  PageTable c(pool, kPage);
  ASSERT_TRUE(c.reserve(1));
  c = std::move(b);
  EXPECT_EQ(c.length(), 5);
  EXPECT_EQ(pool.in_use(), 2);
}

TEST(PageTableDeathTest, LengthsAreChecked) {
  PagePool pool(4);
  PageTable table(pool, kPage);
  EXPECT_DEATH(table.append(1), "room for 0");
  EXPECT_DEATH(table.truncate(1), "truncated to 1 of 0");
}

}  // namespace
}  // namespace adze::cache
