// Recurrent states in the index: where they are kept, what goes on from them, and which go first.
#include "base/limits.hpp"
#include "cache/kv_cache_fixture.hpp"

namespace adze::cache {
namespace {

using testing::HasSubstr;

using KvCacheStates = KvCacheTest;  // pages of 4, a checkpoint every 8 positions

TEST_F(KvCacheStates, StopsWhereAStateCanBeKept) {
  make_states(16, 4);
  const Ids ids = text(0, 20);
  {
    KvSequence a = open();
    std::vector<std::int64_t> stops;
    while (a.length() < 20) {
      stops.push_back(a.next_stop(20));
      compute(a, ids, stops.back());
    }
    EXPECT_THAT(stops, testing::ElementsAre(8, 16, 19, 20));
    KvSequence b = open();
    EXPECT_EQ(b.next_stop(1), 1);
    EXPECT_EQ(b.next_stop(2), 1);
    EXPECT_EQ(b.next_stop(9), 8);
  }
  make_full(4);
  EXPECT_EQ(open().next_stop(20), 20);
}

TEST_F(KvCacheStates, GoesOnFromThePromptsEnd) {
  make_states(32, 8);
  for (const std::int64_t length : {2, 4, 5, 6, 8, 9, 13, 17, 18}) {
    const Ids ids = text(static_cast<std::int32_t>(100 * length), length);
    KvSequence a = open();
    EXPECT_THAT(a.attach(ids, length), reuses(0, MissReason::new_prefix));
    prefill(a, ids);
    // The same prompt, while the first still runs.
    KvSequence b = open();
    EXPECT_THAT(b.attach(ids, length), reuses(length - 1, MissReason::none)) << length;
    EXPECT_EQ(state(b), static_cast<std::uint64_t>(length - 1));
    EXPECT_NE(a.slot(), b.slot());
  }
}

TEST_F(KvCacheStates, AnEndIsHandedOver) {
  make_states(32, 2);
  const Ids ids = text(0, 6);
  KvSequence a = open();
  compute(a, ids, 6);
  const std::int32_t slot = a.slot();
  const int copies = device->state_copies;
  a.publish_tail(ids, State::hand_over);
  EXPECT_EQ(device->state_copies, copies);
  EXPECT_EQ(cache->slots_in_use(), 0);
  EXPECT_EQ(cache->free_slots(), 1);
  KvSequence b = open();
  EXPECT_THAT(b.attach(joined(ids, {9, 9}), 8), reuses(6, MissReason::new_prefix));
  EXPECT_NE(b.slot(), slot);
  EXPECT_EQ(state(b), 6u);
}

TEST_F(KvCacheStates, PartOfAPageHasNoState) {
  make_states(32, 8);
  const Ids ids = text(0, 15);
  request(ids);  // states at 8, 14 and 15
  EXPECT_THAT(look(joined(first(ids, 14), {99, 99})), reuses(14, MissReason::new_prefix));
  EXPECT_THAT(look(joined(first(ids, 13), {99, 99})), reuses(8, MissReason::no_state));
  EXPECT_THAT(look(joined(first(ids, 8), {99, 99})), reuses(8, MissReason::new_prefix));
  EXPECT_THAT(look(joined(first(ids, 7), {99, 99})), reuses(0, MissReason::no_state));
}

TEST_F(KvCacheStates, KeepsAStateWhereTextsPart) {
  make({.page_tokens = 4, .full_pages = 64, .slots = 16, .checkpoint_tokens = 400});
  const Ids shared = text(0, 30);
  request(joined(shared, text(100, 9)));
  const Ids second = joined(shared, text(200, 9));
  {
    KvSequence a = open();
    EXPECT_THAT(a.attach(second, 39), reuses(0, MissReason::no_state));
    EXPECT_EQ(a.next_stop(39), 28);  // the last whole page that both begin with
    prefill(a, second);
    a.publish_tail(second, State::hand_over);
  }
  EXPECT_THAT(look(joined(shared, text(300, 9))), reuses(28, MissReason::no_state));
}

TEST_F(KvCacheStates, TheTailIsWhereTheStateStands) {
  for (const std::int64_t pending : {1, 2, 3, 4, 5}) {
    make_states(32, 4);
    const Ids ids = text(0, 11);
    KvSequence a = open();
    compute(a, ids, 5);
    compute(a, ids, 10, pending);
    const std::int64_t stands = 10 - pending;
    a.publish_tail(ids, State::hand_over);
    EXPECT_EQ(cache->in_use(Group::full), 0);
    KvSequence b = open();
    EXPECT_EQ(b.attach(ids, 11).tokens, stands);
    EXPECT_EQ(state(b), static_cast<std::uint64_t>(stands)) << pending;
  }
}

TEST_F(KvCacheStates, TheLastSlotMovesToWhoGoesOn) {
  make_states(16, 1);
  const Ids ids = text(0, 6);
  request(ids);
  const int copies = device->state_copies;
  KvSequence a = open();
  EXPECT_EQ(a.attach(joined(ids, {8, 8}), 8).tokens, 6);
  EXPECT_EQ(device->state_copies, copies);
  EXPECT_EQ(state(a), 6u);
  EXPECT_EQ(cache->obtainable_slots(), 0);
  EXPECT_THAT(look(joined(ids, {8, 8})), reuses(0, MissReason::no_state));
  KvSequence b = open();
  const Status status = b.reserve(1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(status.error().message, HasSubstr("all 1 slots of recurrent state are in use by other sequences"));
  EXPECT_FALSE(a.fork());
  a.publish_tail(ids, State::hand_over);
  EXPECT_TRUE(b.reserve(1));
}

TEST_F(KvCacheStates, CheckpointsGoBeforeEnds) {
  make_states(64, 5);
  request(text(0, 3));    // ends at 2 and 3
  request(text(50, 10));  // a checkpoint at 8, ends at 9 and 10
  EXPECT_EQ(cache->free_slots(), 0);
  KvSequence other = open();
  ASSERT_TRUE(other.reserve(1));
  EXPECT_THAT(look(joined(text(0, 3), {99, 99})), reuses(3, MissReason::new_prefix));
  EXPECT_THAT(look(joined(text(50, 10), {99, 99})), reuses(10, MissReason::new_prefix));
  EXPECT_THAT(look(joined(first(text(50, 10), 8), {99, 99})), reuses(0, MissReason::no_state));
}

TEST_F(KvCacheStates, ALongPromptLeavesTheEndsOfOthers) {
  make_states(64, 5);
  request(text(0, 3));
  const Ids ids = text(50, 60);
  KvSequence a = open();
  while (a.length() < 56) compute(a, ids, a.next_stop(60));  // seven checkpoints, for which two slots are left
  EXPECT_EQ(cache->statistics().kept_states, 2 + 7);
  EXPECT_THAT(look(joined(text(0, 3), {99, 99})), reuses(3, MissReason::new_prefix));
}

TEST_F(KvCacheStates, ACheckpointThatWasUsedStays) {
  make_states(64, 5);
  const Ids ids = text(50, 60);
  KvSequence a = open();
  while (a.length() < 56) {
    compute(a, ids, a.next_stop(60));
    EXPECT_TRUE(a.length() != 16 || look(first(ids, 18)).tokens == 16);
  }
  EXPECT_EQ(look(first(ids, 18)).tokens, 16);
  EXPECT_EQ(look(first(ids, 10)).tokens, 0);
}

TEST_F(KvCacheStates, PagesWithoutAStateAreNotKept) {
  make_states(64, 4);
  {
    KvSequence a = open();
    compute(a, text(0, 7), 7);
  }  // it failed: nothing was handed over
  EXPECT_EQ(cache->free_pages(Group::full), 64);
  request(text(0, 30));
  EXPECT_EQ(cache->free_pages(Group::full), 64 - 9);  // two tails
  // Its states go, one after the other, and the pages behind them.
  for (std::int32_t i = 1; i < 8; ++i) request(text(100 * i, 3));
  EXPECT_THAT(look(text(0, 30)), reuses(0, MissReason::evicted));
  EXPECT_EQ(cache->nodes(), 1u + 4u);
  EXPECT_EQ(cache->free_pages(Group::full), 60);
}

TEST_F(KvCacheStates, AModelOfStatesAloneHasNoPages) {
  make({.page_tokens = 4, .slots = 6, .checkpoint_tokens = 8});
  const Ids ids = text(0, 19);
  request(ids);
  EXPECT_THAT(look(ids), reuses(18, MissReason::none));
  EXPECT_THAT(look(joined(first(ids, 16), {99})), reuses(16, MissReason::none));
  KvSequence a = open();
  EXPECT_EQ(a.attach(ids, 19).tokens, 18);
  EXPECT_TRUE(a.full().empty());
  EXPECT_EQ(state(a), 18u);
  EXPECT_EQ(a.needs(Group::full, 100), 0);
}

TEST_F(KvCacheStates, WithoutPagesNodesAreCounted) {
  make({.page_tokens = 1, .slots = 8, .checkpoint_tokens = 1'000'000});
  const auto length = static_cast<std::int64_t>(limits::kMaxPagelessNodes) + 1000;
  request(text(-1000, 4));
  const Ids ids = text(0, length);
  KvSequence a = open();
  compute(a, ids, length);
  EXPECT_EQ(cache->nodes(), limits::kMaxPagelessNodes);
  EXPECT_EQ(look(text(-1000, 4)).tokens, 0);  // it went for the longer one
  a.publish_tail(ids, State::hand_over);
  EXPECT_EQ(cache->nodes(), 1u);  // the root: the end had no place, and without it nothing was worth keeping
  EXPECT_EQ(cache->free_slots(), 8);
}

}  // namespace
}  // namespace adze::cache
