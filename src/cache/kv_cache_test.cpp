#include "cache/kv_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/limits.hpp"
#include "cache/kv_cache_fixture.hpp"

// Counts every allocation of this test binary, to prove that a decoding step makes none.
namespace {
std::atomic<std::int64_t> allocations = 0;
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace adze::cache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
// ---- reuse --------------------------------------------------------------------------------------------------------

TEST_F(KvCacheTest, AnIdenticalPromptComputesItsLastToken) {
  make_full(16);
  for (const std::int64_t length : {1, 2, 3, 4, 5, 7, 8, 9, 31}) {
    const Ids ids = text(static_cast<std::int32_t>(100 * length), length);
    EXPECT_THAT(request(ids), reuses(0, length == 1 ? MissReason::none : MissReason::new_prefix));
    EXPECT_THAT(request(ids), reuses(length - 1, MissReason::none)) << length;
    EXPECT_EQ(cache->in_use(Group::full), 0);
    cache->clear();
  }
}

TEST_F(KvCacheTest, SharesPartOfAPageAndCopiesItWhenWritten) {
  make_full(16);
  const Ids ids = text(0, 10);
  request(ids);
  const int copies = device->page_copies;
  KvSequence sequence = open();
  EXPECT_THAT(sequence.attach(joined(first(ids, 6), text(50, 4)), 10), reuses(6, MissReason::new_prefix));
  EXPECT_EQ(sequence.full().size(), 2u);
  const std::int32_t shared = sequence.full()[1];
  EXPECT_EQ(sequence.needs(Group::full, 7), 0);  // no other sequence shares it: it could be had for good
  EXPECT_TRUE(sequence.reserve(7));
  EXPECT_NE(sequence.full()[1], shared);
  EXPECT_EQ(device->page_copies, copies + 1);
  EXPECT_THAT(look(ids), reuses(9, MissReason::none));
}

TEST_F(KvCacheTest, TheLongestCommonBeginningWins) {
  make_full(32);
  request({1, 2, 3, 4, 5, 6, 7});
  request({1, 2, 3, 4, 5, 9, 9, 9, 9});
  EXPECT_THAT(look({1, 2, 3, 4, 5, 6, 8, 8}), reuses(6, MissReason::new_prefix));
  EXPECT_THAT(look({1, 2, 3, 4, 5, 9, 9, 8}), reuses(7, MissReason::none));
  EXPECT_THAT(look({1, 2, 3, 4, 4, 4}), reuses(4, MissReason::new_prefix));
  EXPECT_THAT(look({1, 2, 2, 2}), reuses(2, MissReason::new_prefix));
  EXPECT_THAT(open().attach(first({1, 2, 3, 4, 5, 6, 7}, 7), 3), reuses(2, MissReason::none));  // no more was asked
}

TEST_F(KvCacheTest, ARunningTextIsSharedAlready) {
  make_full(16);
  const Ids ids = text(0, 12);
  KvSequence a = open();
  compute(a, ids, 9);
  KvSequence b = open();
  EXPECT_THAT(b.attach(ids, 12), reuses(8, MissReason::new_prefix));
  EXPECT_EQ(cache->in_use(Group::full), 3);
  EXPECT_EQ(a.full()[0], b.full()[0]);
}

TEST_F(KvCacheTest, WhatTwoComputedAtOnceIsKeptOnce) {
  make_full(16);
  const Ids ids = text(0, 12);
  KvSequence a = open(), b = open();
  ASSERT_TRUE(a.reserve(12) && b.reserve(12));
  a.commit(12);
  b.commit(12);
  EXPECT_EQ(cache->in_use(Group::full), 6);
  a.publish(ids);
  b.publish(ids);
  EXPECT_EQ(cache->in_use(Group::full), 3);
  EXPECT_THAT(Ids(b.full().begin(), b.full().end()), testing::ElementsAreArray(a.full()));
  EXPECT_EQ(cache->statistics().shared_pages, 3);
}

TEST_F(KvCacheTest, ALongerPieceReplacesATail) {
  make_full(16);
  const Ids ids = text(0, 4);
  request(first(ids, 2));
  EXPECT_EQ(cache->nodes(), 2u);  // the root too
  request(first(ids, 3));
  EXPECT_EQ(cache->nodes(), 2u);
  request(ids);
  EXPECT_EQ(cache->nodes(), 2u);
  request(first(ids, 2));  // the page does what a tail would
  EXPECT_EQ(cache->nodes(), 2u);
  EXPECT_EQ(cache->free_pages(Group::full), 15);
}

TEST_F(KvCacheTest, RootsShareNothing) {
  make_full(32);
  const Ids ids = text(0, 10);
  request(ids);
  EXPECT_THAT(look(ids, kOtherRoot), reuses(0, MissReason::other_settings));
  EXPECT_THAT(look(first(ids, 3), kOtherRoot), reuses(0, MissReason::other_settings));
  EXPECT_THAT(look(joined({0, 1}, text(70, 5)), kOtherRoot), reuses(0, MissReason::new_prefix));
  request(ids, kOtherRoot);
  EXPECT_THAT(look(ids, kOtherRoot), reuses(9, MissReason::none));
}

TEST_F(KvCacheTest, OnlySomeRootsAreCompared) {
  make_full(8);
  std::vector<KvSequence> others;
  for (std::uint64_t i = 0; i <= limits::kMaxRootsCompared; ++i) others.push_back(open({.low = i, .high = 0}));
  const Ids ids = text(0, 5);
  compute(others.front(), ids, 4);
  EXPECT_THAT(look(ids, {.low = 99, .high = 0}), reuses(0, MissReason::other_settings));
  others.front().clear();
  cache->clear();
  compute(others.back(), ids, 4);
  EXPECT_THAT(look(ids, {.low = 99, .high = 0}), reuses(0, MissReason::new_prefix));
}

// ---- room ---------------------------------------------------------------------------------------------------------

TEST_F(KvCacheTest, RefusesWithNumbersAndChangesNothing) {
  make_full(4);
  KvSequence a = open(), b = open();
  compute(a, text(0, 8), 8);
  compute(b, text(50, 4), 4);
  const Status status = b.reserve(13);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(status.error().message,
              HasSubstr("13 positions need 3 more pages of full-attention KV, but only 1 of 4 can be had"));
  EXPECT_EQ(b.full().size(), 1u);
  EXPECT_TRUE(b.reserve(8));
  EXPECT_FALSE(b.reserve(9));
  b.shrink();
  EXPECT_EQ(cache->obtainable(Group::full), 1);
}

TEST_F(KvCacheTest, TheLeastRecentlyUsedGoesFirst) {
  make_full(6);
  const Ids a = text(0, 8), b = text(20, 8), c = text(40, 8);
  request(a);
  request(b);
  request(c);
  EXPECT_EQ(cache->free_pages(Group::full), 0);
  request(first(a, 6));  // used again
  request(text(60, 8));
  EXPECT_THAT(look(a), reuses(7, MissReason::none));
  EXPECT_THAT(look(c), reuses(7, MissReason::none));
  EXPECT_THAT(look(b), reuses(0, MissReason::evicted));
  EXPECT_EQ(cache->statistics().evicted_pages[0], 2);
}

TEST_F(KvCacheTest, ATextGoesFromItsEnd) {
  make_full(4);
  const Ids ids = text(0, 14);
  request(ids);
  request(text(50, 2));
  EXPECT_THAT(look(ids), reuses(12, MissReason::evicted));
  request(text(60, 6));
  EXPECT_THAT(look(ids), reuses(8, MissReason::evicted));  // the other was not looked at since
}

TEST_F(KvCacheTest, WhatARunningTextSharesStays) {
  make_full(4);
  request(text(0, 8));
  KvSequence a = open();
  EXPECT_EQ(a.attach(text(0, 9), 9).tokens, 8);
  EXPECT_EQ(cache->obtainable(Group::full), 2);
  KvSequence b = open();
  EXPECT_TRUE(b.reserve(8));
  EXPECT_FALSE(b.reserve(9));
  EXPECT_FALSE(a.reserve(9));
  b.clear();
  EXPECT_TRUE(a.reserve(9));
}

TEST_F(KvCacheTest, ATextThatFillsThePoolTakesItsTailBack) {
  make_full(2);
  const Ids ids = text(0, 8);
  KvSequence a = open();
  compute(a, ids, 6);
  a.publish_tail(ids, State::copy);
  EXPECT_EQ(cache->nodes(), 3u);
  compute(a, ids, 8);
  EXPECT_EQ(device->page_copies, 0);
  a.publish_tail(ids, State::hand_over);
  EXPECT_THAT(look(ids), reuses(7, MissReason::none));
}

TEST_F(KvCacheTest, AForkSharesEverythingUntilItWrites) {
  make_full(8);
  const Ids ids = text(0, 6);
  KvSequence a = open();
  compute(a, ids, 6);
  KvSequence b = *a.fork();
  EXPECT_EQ(b.length(), 6);
  EXPECT_EQ(cache->in_use(Group::full), 2);
  EXPECT_EQ(a.needs(Group::full, 7), 1);
  ASSERT_TRUE(a.reserve(7));
  EXPECT_NE(a.full()[1], b.full()[1]);
  EXPECT_EQ(a.full()[0], b.full()[0]);
  EXPECT_EQ(b.needs(Group::full, 7), 0);  // it is alone with the page now
  ASSERT_TRUE(b.reserve(7));
  EXPECT_EQ(device->page_copies, 1);
}

TEST_F(KvCacheTest, AForkThatNobodyPublishedIsCountedRight) {
  make_full(8);
  const Ids ids = text(0, 4);
  KvSequence a = open();
  ASSERT_TRUE(a.reserve(4));
  a.commit(4);
  KvSequence b = *a.fork();
  a.publish(ids);  // of a page that b shares and does not know to be known
  a.clear();
  EXPECT_EQ(cache->in_use(Group::full), 1);
  EXPECT_EQ(cache->obtainable(Group::full), 7);
  b.publish(ids);
  EXPECT_EQ(cache->in_use(Group::full), 1);
  b.clear();
  EXPECT_EQ(cache->obtainable(Group::full), 8);
  EXPECT_EQ(cache->free_pages(Group::full), 7);
}

TEST_F(KvCacheTest, RemembersSoManyEvictedKeys) {
  make_full(1);
  const auto prompts = static_cast<std::int32_t>(limits::kMaxEvictedKeys) * 4;
  for (std::int32_t i = 0; i < prompts; ++i) request({i, 0});
  std::size_t remembered = 0;
  for (std::int32_t i = 0; i + 1 < prompts; ++i) remembered += look({i, 0}).why_not_more == MissReason::evicted ? 1 : 0;
  EXPECT_LE(remembered, limits::kMaxEvictedKeys);
  EXPECT_GT(remembered, limits::kMaxEvictedKeys * 9 / 10);
}

TEST_F(KvCacheTest, ClearForgetsWhatNobodyShares) {
  make_full(8);
  request(text(0, 10));
  KvSequence a = open();
  EXPECT_EQ(a.attach(text(0, 6), 6).tokens, 5);
  cache->clear();
  EXPECT_EQ(cache->free_pages(Group::full), 6);
  EXPECT_THAT(look(text(0, 10)), reuses(8, MissReason::new_prefix));  // the page that is shared in part is there whole
  a.clear();
  cache->clear();
  EXPECT_THAT(look(text(0, 10)), reuses(0, MissReason::new_prefix));
  EXPECT_EQ(cache->free_pages(Group::full), 8);
}

TEST_F(KvCacheTest, ADecodingStepAllocatesNothing) {
  make({.page_tokens = 64, .full_pages = 8, .sliding_pages = 8, .slots = 4, .window = 32});
  const Ids ids = text(0, 128);
  KvSequence a = open();
  compute(a, ids, 65);
  for (std::int64_t i = 66; i < 128; ++i) {
    const std::int64_t before = allocations;
    const bool reserved = a.reserve(i).has_value();
    a.commit(1);
    a.shrink();
    a.publish(ids);
    EXPECT_EQ(allocations - before, 0) << i;
    EXPECT_TRUE(reserved);
  }
}

TEST_F(KvCacheTest, CountsWhatItDid) {
  make_full(16);
  request(text(0, 9));
  request(text(0, 9));
  request(text(0, 6));
  const CacheStatistics counts = cache->statistics();
  EXPECT_EQ(counts.lookups, 3);
  EXPECT_EQ(counts.hits, 2);
  EXPECT_EQ(counts.asked_tokens, 8 + 8 + 5);
  EXPECT_EQ(counts.reused_tokens, 8 + 5);
  EXPECT_THAT(counts.reasons, ElementsAre(2, 1, 0, 0, 0));
}

using KvCacheDeathTest = KvCacheTest;

TEST_F(KvCacheDeathTest, ChecksItsCallers) {
  make_states(8, 2);
  KvSequence a = open();
  EXPECT_DEATH(a.commit(1), "1 positions committed at 0, room for 0");
  ASSERT_TRUE(a.reserve(6));
  EXPECT_DEATH(a.commit(9), "room for 8");
  a.commit(6, 2);
  EXPECT_DEATH((void)a.attach(text(0, 9), 9), "a sequence of 6 positions attached");
  EXPECT_DEATH((void)a.fork(), "2 positions are not in its state");
  EXPECT_DEATH(a.publish(text(0, 5)), "5 ids published of 6 positions");
  EXPECT_DEATH(cache.reset(), "1 sequences outlive their cache");
}

TEST(MissReasons, HaveNames) {
  EXPECT_EQ(miss_reason_name(MissReason::none), "none");
  EXPECT_EQ(miss_reason_name(MissReason::new_prefix), "new_prefix");
  EXPECT_EQ(miss_reason_name(MissReason::evicted), "evicted");
  EXPECT_EQ(miss_reason_name(MissReason::other_settings), "other_settings");
  EXPECT_EQ(miss_reason_name(MissReason::no_state), "no_state");
}

// ---- sliding windows ----------------------------------------------------------------------------------------------

TEST_F(KvCacheTest, PagesLeaveTheWindowBehindCommittedPositions) {
  for (const std::int64_t window : {1, 3, 4, 5, 8, 9}) {
    make_sliding(window, 16, 16);
    const Ids ids = text(0, 30);
    KvSequence a = open();
    for (std::int64_t length = 1; length <= 30; ++length) {
      compute(a, ids, length);
      // The next row stands at `length` and reads from length - window + 1 on.
      for (std::int64_t page = 0; page < (length + 3) / 4; ++page) {
        EXPECT_EQ(a.sliding()[static_cast<std::size_t>(page)] >= 0, 4 * page + 3 >= length - window + 1)
            << "window " << window << ", length " << length << ", page " << page;
        EXPECT_GE(a.full()[static_cast<std::size_t>(page)], 0);
      }
    }
    a.clear();
  }
}

TEST_F(KvCacheTest, ReuseNeedsTheWindowAndNoMore) {
  make_sliding(5, 32, 8);
  const Ids ids = text(0, 16);
  request(ids);
  EXPECT_THAT(look(joined(ids, {99})), reuses(16, MissReason::none));
  // The oldest four pages go: what is left are those of [12, 16) and ...
  KvSequence other = open();
  ASSERT_TRUE(other.reserve(24));
  EXPECT_EQ(cache->free_pages(Group::sliding), 0);
  // ... [8, 12), so that work can go on at 16 and at 13, which read from 12 and from 9 on, but not at 12.
  EXPECT_THAT(look(joined(ids, {99})), reuses(16, MissReason::none));
  EXPECT_THAT(look(joined(first(ids, 13), {99, 99})), reuses(13, MissReason::new_prefix));
  EXPECT_THAT(look(joined(first(ids, 12), {99, 99})), reuses(12, MissReason::new_prefix));
  EXPECT_THAT(look(joined(first(ids, 11), {99, 99})), reuses(0, MissReason::evicted));
  KvSequence a = open();
  EXPECT_EQ(a.attach(joined(ids, {99}), 17).tokens, 16);
  EXPECT_THAT(std::vector<bool>({a.sliding()[0] >= 0, a.sliding()[1] >= 0, a.sliding()[2] >= 0, a.sliding()[3] >= 0}),
              ElementsAre(false, false, false, true));
}

TEST_F(KvCacheTest, AWindowPastItsPagesIsComputedAgainAndKept) {
  make_sliding(5, 32, 8);
  const Ids ids = text(0, 16);
  request(ids);
  {
    KvSequence other = open();
    ASSERT_TRUE(other.reserve(24));
  }
  const Ids longer = joined(first(ids, 11), {99});
  EXPECT_THAT(look(longer), reuses(0, MissReason::evicted));
  request(longer);  // fills the gaps of the nodes that are there
  EXPECT_THAT(look(joined(first(ids, 10), {77, 77})), reuses(10, MissReason::new_prefix));
}

TEST_F(KvCacheTest, AGapIsNotFilledWithAForksPage) {
  make_sliding(5, 32, 8);
  const Ids ids = text(0, 16);
  request(ids);
  {
    KvSequence other = open();
    ASSERT_TRUE(other.reserve(24));  // the first two nodes have no sliding page now
  }
  KvSequence a = open();
  ASSERT_TRUE(a.reserve(4));
  a.commit(4);
  KvSequence b = *a.fork();
  a.publish(ids);
  a.clear();
  EXPECT_EQ(cache->in_use(Group::sliding), 1);
  b.clear();
  EXPECT_EQ(cache->in_use(Group::sliding), 0);
}

TEST_F(KvCacheTest, NamesTheGroupThatIsOutOfPages) {
  make_sliding(4, 16, 2);
  KvSequence a = open();
  const Status status = a.reserve(12);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("3 more pages of sliding-window KV, but only 2 of 2"));
  EXPECT_EQ(cache->in_use(Group::full), 0);
}

TEST_F(KvCacheTest, ComparesSoManySiblings) {
  make_sliding(4, 8000, 4000);
  // One text whose page still has its sliding part stands behind many that have none, and are held.
  std::vector<KvSequence> held;
  for (std::int32_t i = 0; i < 2 * limits::kMaxSiblingsCompared; ++i) {
    const Ids ids = {1, 2, 1000 + i, 0, i, i, i, i, i};
    held.push_back(open());
    compute(held.back(), ids, 9);
  }
  {
    KvSequence all = open();
    ASSERT_TRUE(all.reserve(4 * cache->obtainable(Group::sliding)));
  }
  request({1, 2, 2000, 0});
  EXPECT_THAT(look({1, 2, 1999, 5}), reuses(2, MissReason::new_prefix));
  EXPECT_THAT(look({1, 2, 5, 5}), reuses(0, MissReason::evicted));
}

}  // namespace
}  // namespace adze::cache
