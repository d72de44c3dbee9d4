#include "cache/slot_pool.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace adze::cache {
namespace {

TEST(SlotPool, LendsEverySlotOnce) {
  SlotPool pool(2);
  StateSlot a(pool), b(pool), c(pool);
  EXPECT_FALSE(a.held());
  EXPECT_TRUE(a.take());
  EXPECT_TRUE(a.take());  // holds one already
  EXPECT_TRUE(b.take());
  EXPECT_EQ(a.index(), 0);
  EXPECT_EQ(b.index(), 1);
  const Status none = c.take();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::out_of_memory);
  EXPECT_FALSE(c.held());
  a.release();
  a.release();
  EXPECT_EQ(pool.available(), 1);
  EXPECT_TRUE(c.take());
  EXPECT_EQ(c.index(), 0);
}

TEST(SlotPool, AModelWithoutRecurrentLayersNeedsNone) {
  SlotPool pool(0);
  StateSlot slot(pool);
  EXPECT_FALSE(slot.needed());
  EXPECT_TRUE(slot.take());
  EXPECT_FALSE(slot.held());
}

TEST(SlotPool, SlotsMoveAndComeBack) {
  SlotPool pool(2);
  {
    StateSlot a(pool);
    ASSERT_TRUE(a.take());
    StateSlot b = std::move(a);
    EXPECT_EQ(b.index(), 0);
    StateSlot c(pool);
    ASSERT_TRUE(c.take());
    c = std::move(b);
    EXPECT_EQ(c.index(), 0);
    EXPECT_EQ(pool.available(), 1);
  }
  EXPECT_EQ(pool.available(), 2);
}

TEST(SlotPoolDeathTest, AnIdlePoolIsFull) {
  EXPECT_DEATH(
      {
        SlotPool pool(1);
        auto* leaked = new StateSlot(pool);
        (void)leaked->take();
      },
      "1 slots of state were never released");
}

}  // namespace
}  // namespace adze::cache
