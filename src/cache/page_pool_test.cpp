#include "cache/page_pool.hpp"

#include <gtest/gtest.h>

namespace adze::cache {
namespace {

TEST(PagePool, HandsOutEveryPageOnce) {
  PagePool pool(3);
  EXPECT_EQ(pool.in_use(), 0);
  const PageHandle a = pool.take().value();
  const PageHandle b = pool.take().value();
  const PageHandle c = pool.take().value();
  EXPECT_EQ(a.index, 0);
  EXPECT_EQ(b.index, 1);
  EXPECT_EQ(c.index, 2);
  const auto none = pool.take();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(none.error().message.find('3'), std::string::npos);
  pool.release(b);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_EQ(pool.take()->index, 1);
  for (const PageHandle page : {a, PageHandle{.index = 1, .generation = 2}, c}) pool.release(page);
  EXPECT_EQ(pool.in_use(), 0);
}

TEST(PagePool, CountsReferences) {
  PagePool pool(1);
  const PageHandle page = pool.take().value();
  pool.share(page);
  EXPECT_EQ(pool.references(page), 2);
  pool.release(page);
  EXPECT_EQ(pool.available(), 0);
  pool.release(page);
  EXPECT_EQ(pool.available(), 1);
}

TEST(PagePoolDeathTest, CatchesStaleHandles) {
  PagePool pool(2);
  const PageHandle old = pool.take().value();
  pool.release(old);
  EXPECT_DEATH(pool.release(old), "stale handle of page 0");
  const PageHandle again = pool.take().value();
  EXPECT_EQ(again.index, old.index);
  EXPECT_DEATH(pool.share(old), "generation 1, not 2");
  EXPECT_DEATH(pool.references({.index = 7, .generation = 1}), "page 7 of 2");
  pool.release(again);
}

TEST(PagePoolDeathTest, AnIdlePoolIsEmpty) {
  EXPECT_DEATH(
      {
        PagePool pool(2);
        (void)pool.take();
      },
      "1 pages of KV were never released");
}

}  // namespace
}  // namespace adze::cache
