// For tests: a cache on a fake device, and requests as the engine computes them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "cache/fake_device.hpp"
#include "cache/kv_cache.hpp"

namespace adze::cache {

using Ids = std::vector<std::int32_t>;
using State = KvSequence::State;

inline constexpr Digest kRoot = {.low = 1, .high = 2};
inline constexpr Digest kOtherRoot = {.low = 3, .high = 4};

// `count` ids that no other `first` shares.
inline Ids text(std::int32_t first, std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}
inline Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline Ids first(const Ids& ids, std::int64_t count) { return {ids.begin(), ids.begin() + count}; }

class KvCacheTest : public testing::Test {
 protected:
  void make(const CacheOptions& options) {
    device = std::make_unique<FakeDevice>(options);
    cache = std::make_unique<KvCache>(options, *device);
  }
  // Pages of 4.
  void make_full(std::int32_t pages) { make({.page_tokens = 4, .full_pages = pages, .checkpoint_tokens = 8}); }
  void make_sliding(std::int64_t window, std::int32_t full, std::int32_t sliding) {
    make({.page_tokens = 4, .full_pages = full, .sliding_pages = sliding, .window = window, .checkpoint_tokens = 8});
  }
  void make_states(std::int32_t pages, std::int32_t slots) {
    make({.page_tokens = 4, .full_pages = pages, .slots = slots, .checkpoint_tokens = 8});
  }

  KvSequence open(Digest root = kRoot) { return cache->open(root); }
  // What a step does: room, rows, and telling the index.
  void compute(KvSequence& sequence, const Ids& ids, std::int64_t to, std::int64_t pending = 0) {
    const Status status = sequence.reserve(to);
    ASSERT_TRUE(status) << status.error().message;
    sequence.commit(to - sequence.length(), pending);
    if (sequence.slot() >= 0) state(sequence) = static_cast<std::uint64_t>(to - pending);
    sequence.publish(ids);
  }
  // A prompt as the engine computes it, with a stop wherever a state can be kept.
  void prefill(KvSequence& sequence, const Ids& ids) {
    const std::int64_t length = std::ssize(ids);
    const std::int64_t end = sequence.slot() >= 0 || cache->options().slots > 0 ? length - 1 : length;
    while (sequence.length() < length) {
      compute(sequence, ids, sequence.next_stop(length));
      if (sequence.length() == end) sequence.publish_tail(ids, State::copy);
    }
  }
  // A request from its first to its last moment; how much of its prompt was there.
  Reuse request(const Ids& ids, Digest root = kRoot) {
    KvSequence sequence = open(root);
    const Reuse reuse = sequence.attach(ids, std::ssize(ids));
    prefill(sequence, ids);
    sequence.publish_tail(ids, State::hand_over);
    return reuse;
  }
  // What is there, without computing the rest.
  Reuse look(const Ids& ids, Digest root = kRoot) { return open(root).attach(ids, std::ssize(ids)); }
  std::uint64_t& state(const KvSequence& sequence) { return device->state(sequence.slot()); }

  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<KvCache> cache;
};

MATCHER_P2(reuses, tokens, reason, "") {
  *result_listener << "reuses " << arg.tokens << ", " << miss_reason_name(arg.why_not_more);
  return arg.tokens == tokens && arg.why_not_more == reason;
}

}  // namespace adze::cache
