// Random lives of texts on one cache, against a device that knows what each position must hold. What is checked after
// every move: each sequence reads its own text at every position that its next row reads, its state is that of its
// text, and both pools and the slots add up. At the end everything is free.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cache/fake_device.hpp"
#include "cache/kv_cache.hpp"

namespace adze::cache {
namespace {

using Ids = std::vector<std::int32_t>;

struct Text {
  KvSequence memory;
  std::uint64_t root;
  Ids ids;                  // what is known: the prompt, then what was generated
  std::int64_t prompt = 0;  // tokens
  std::int64_t pending = 0;
};

class Life {
 public:
  Life(std::uint32_t seed, const CacheOptions& options, bool roomy)
      : random_(seed), options_(options), roomy_(roomy), device_(options), cache_(options, device_) {}

  void live(int moves) {
    for (int i = 0; i < moves && !testing::Test::HasFailure(); ++i) {
      move();
      check();
    }
    texts_.clear();
    check();
    if (roll(2) == 0) fill_to_the_brim();
    cache_.clear();
    for (const Group group : kEachGroup) {
      EXPECT_EQ(cache_.in_use(group), 0);
      EXPECT_EQ(cache_.free_pages(group), group == Group::full ? options_.full_pages : options_.sliding_pages);
    }
    EXPECT_EQ(cache_.free_slots(), options_.slots);
    EXPECT_EQ(cache_.nodes(), 0u);
  }

  std::int64_t reused = 0, refused = 0, forks = 0, lookups = 0;
  CacheStatistics statistics() const { return cache_.statistics(); }

 private:
  std::int64_t roll(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  bool states() const { return options_.slots > 0; }
  Text& any() { return *std::next(texts_.begin(), roll(std::ssize(texts_))); }

  void move() {
    if (texts_.empty() || (roll(6) == 0 && texts_.size() < 5)) return start();
    Text& text = any();
    switch (roll(24)) {
      case 0: return end(text);
      case 1: return erase(text);  // without a word
      case 2: return fork(text);
      case 3:
        if (!roomy_ && roll(20) == 0) cache_.clear();
        return;
      case 4: {
        KvSequence moved = std::move(text.memory);
        text.memory = std::move(moved);
        return;
      }
      default: break;
    }
    if (text.memory.length() < text.prompt) return prefill(text);
    if (std::ssize(text.ids) > text.prompt + 20) return end(text);
    decode(text);
  }

  void start() {
    Ids ids;
    if (!past_.empty() && roll(4) != 0) {
      ids = past_[static_cast<std::size_t>(roll(std::ssize(past_)))];
      ids.resize(static_cast<std::size_t>(roll(std::ssize(ids) + 1)));
    }
    const std::int64_t more = roll(14) + (ids.empty() ? 1 : 0);
    for (std::int64_t i = 0; i < more; ++i) ids.push_back(static_cast<std::int32_t>(roll(2)));
    const std::uint64_t root = roll(5) == 0 ? 1 : 0;
    texts_.push_back(
        {.memory = cache_.open({.low = root, .high = 7}), .root = root, .ids = ids, .prompt = std::ssize(ids)});
    Text& text = texts_.back();
    const std::int64_t asked = roll(8) == 0 ? std::min<std::int64_t>(text.prompt, 1 + roll(9)) : text.prompt;
    const Reuse reuse = text.memory.attach(text.ids, asked);
    EXPECT_EQ(text.memory.length(), reuse.tokens);
    EXPECT_LT(reuse.tokens, asked);
    EXPECT_EQ(reuse.why_not_more == MissReason::none, reuse.tokens == asked - 1);
    if (roomy_) expect_best(text, reuse, asked);
    reused += reuse.tokens;
    ++lookups;
  }

  // Nothing was evicted: all that was published is found again.
  void expect_best(const Text& text, const Reuse& reuse, std::int64_t asked) {
    std::int64_t best = 0;
    for (const Ids& known : states() ? points_[text.root] : known_[text.root]) {
      const std::int64_t common =
          std::mismatch(known.begin(), known.end(), text.ids.begin(), text.ids.end()).first - known.begin();
      if (states() && (common < std::ssize(known) || common > asked - 1)) continue;
      best = std::max(best, std::min(common, asked - 1));
    }
    if (states()) {
      EXPECT_GE(reuse.tokens, best);  // branches may have given more
    } else {
      EXPECT_EQ(reuse.tokens, best);
      EXPECT_NE(reuse.why_not_more, MissReason::evicted);
    }
  }

  void note_published(const Text& text, bool tail) {
    const std::int64_t page = options_.page_tokens;
    const std::int64_t length = text.memory.length();
    const auto first = [&](std::int64_t count) { return Ids(text.ids.begin(), text.ids.begin() + count); };
    known_[text.root].insert(first(tail ? length : length - length % page));
    // Where the window is shorter than a draft, the pages of the position where the state stands may have left it.
    if (options_.sliding_pages > 0 && options_.window <= text.pending) return;
    if (tail || (text.pending == 0 && length % options_.checkpoint_tokens == 0)) {
      points_[text.root].insert(first(length - text.pending));
    }
  }

  bool reserve(Text& text, std::int64_t length) {
    const Ids full(text.memory.full().begin(), text.memory.full().end());
    bool fits = text.memory.slot() >= 0 || !states() || cache_.obtainable_slots() > 0;
    // What left the window since the last publish is to be had too.
    const bool unsure = options_.sliding_pages > 0 && text.memory.length() >= options_.window;
    std::array<std::int64_t, kGroups> left{};  // if it fits
    for (const Group group : kEachGroup) {
      left[index_of(group)] = cache_.obtainable(group) - text.memory.needs(group, length);
      fits = fits && left[index_of(group)] >= 0;
    }
    const Status status = text.memory.reserve(length);
    EXPECT_TRUE(unsure || status.has_value() == fits) << (status ? "" : status.error().message);
    EXPECT_TRUE(!fits || status) << status.error().message;
    for (const Group group : kEachGroup) {
      EXPECT_TRUE(!status || unsure || cache_.obtainable(group) == left[index_of(group)]);
    }
    if (!status) {
      ++refused;
      EXPECT_EQ(Ids(text.memory.full().begin(), text.memory.full().end()), full);
      // Somebody must go. Who does decides what is evicted next.
      if (roll(2) == 0) {
        end(any());
      } else {
        erase(any());
      }
    }
    return status.has_value();
  }

  void write(Text& text, const Ids& ids, std::int64_t from, std::int64_t to) {
    const std::vector<std::uint64_t> right = digests_of(text.root, ids);
    for (const Group group : kEachGroup) {
      if (text.memory.pages(group).empty()) continue;
      for (std::int64_t p = from; p < to; ++p) {
        device_.at(group, text.memory.pages(group), p) = right[static_cast<std::size_t>(p) + 1];
      }
    }
  }
  void set_state(Text& text) {
    if (!states()) return;
    const auto stands = static_cast<std::size_t>(text.memory.length() - text.pending);
    device_.state(text.memory.slot()) = digests_of(text.root, text.ids)[stands];
  }

  void prefill(Text& text) {
    const std::int64_t from = text.memory.length();
    const std::int64_t stop = text.memory.next_stop(text.prompt);
    ASSERT_GT(stop, from);
    ASSERT_LE(stop, text.prompt);
    const std::int64_t to = std::min(stop, from + 1 + roll(11));
    if (!reserve(text, to)) return;
    write(text, text.ids, from, to);
    text.memory.commit(to - from);
    text.pending = 0;
    set_state(text);
    if (roll(30) != 0 || roomy_) {
      text.memory.publish(text.ids);
      note_published(text, false);
    }
    if (to == (states() ? text.prompt - 1 : text.prompt)) {
      text.memory.publish_tail(text.ids, KvSequence::State::copy);
      note_published(text, true);
    }
  }

  void decode(Text& text) {
    const std::int64_t from = text.memory.length();
    if (std::ssize(text.ids) == from) text.ids.push_back(static_cast<std::int32_t>(roll(3)));
    const std::int64_t drafts = roll(4);
    const std::int64_t accepted = roll(drafts + 1);
    if (!reserve(text, from + 1 + drafts)) return;
    Ids rows = text.ids;
    for (std::int64_t i = 0; i < drafts; ++i) rows.push_back(static_cast<std::int32_t>(roll(3)));
    write(text, rows, from, from + 1 + drafts);
    text.ids.assign(rows.begin(), rows.begin() + from + 1 + accepted);
    text.pending = states() ? accepted : 0;
    text.memory.commit(1 + accepted, accepted);
    set_state(text);
    if (roll(2) == 0) text.memory.shrink();
    if (roll(30) != 0 || roomy_) {
      text.memory.publish(text.ids);
      note_published(text, false);
    }
  }

  void fork(Text& text) {
    if (texts_.size() >= 5 || text.pending > 0) return;
    Result<KvSequence> copy = text.memory.fork();
    if (!copy) {
      EXPECT_EQ(cache_.obtainable_slots(), 0);
      return;
    }
    ++forks;
    texts_.push_back({.memory = std::move(*copy), .root = text.root, .ids = text.ids, .prompt = text.prompt});
  }

  void end(Text& text) {
    if (text.memory.length() > 0) {
      note_published(text, true);
      past_.push_back(text.ids);
      if (past_.size() > 8) past_.erase(past_.begin() + roll(8));
    }
    text.memory.publish_tail(text.ids, KvSequence::State::hand_over);
    EXPECT_EQ(text.memory.length(), 0);
    EXPECT_EQ(text.memory.slot(), -1);
    erase(text);
  }
  void erase(Text& text) {
    texts_.remove_if([&](const Text& other) { return &other == &text; });
  }

  void check() {
    std::array<std::set<std::int32_t>, kGroups> held;
    std::set<std::int32_t> slots;
    for (Text& text : texts_) {
      const std::int64_t length = text.memory.length();
      const std::vector<std::uint64_t> right = digests_of(text.root, text.ids);
      for (const Group group : kEachGroup) {
        const auto pages = text.memory.pages(group);
        for (const std::int32_t page : pages) {
          if (page >= 0) held[index_of(group)].insert(page);
        }
        if ((group == Group::full ? options_.full_pages : options_.sliding_pages) == 0) {
          ASSERT_TRUE(pages.empty());
          continue;
        }
        const std::int64_t first = group == Group::full ? 0 : std::max<std::int64_t>(length - options_.window + 1, 0);
        for (std::int64_t p = first; p < length; ++p) {
          ASSERT_GE(pages[static_cast<std::size_t>(p / options_.page_tokens)], 0);
          ASSERT_EQ(device_.at(group, pages, p), right[static_cast<std::size_t>(p) + 1]) << "position " << p;
        }
      }
      if (!states()) continue;
      ASSERT_TRUE(text.memory.slot() < 0 || slots.insert(text.memory.slot()).second);
      if (length > 0) {
        ASSERT_EQ(device_.state(text.memory.slot()), right[static_cast<std::size_t>(length - text.pending)]);
      }
    }
    for (const Group group : kEachGroup) ASSERT_EQ(cache_.in_use(group), std::ssize(held[index_of(group)]));
    ASSERT_EQ(cache_.slots_in_use(), std::ssize(slots));
  }

  // What is said to be obtainable is, to the last page.
  void fill_to_the_brim() {
    KvSequence sequence = cache_.open({.low = 9, .high = 9});
    std::int64_t pages = 1000;
    for (const Group group : kEachGroup) {
      if ((group == Group::full ? options_.full_pages : options_.sliding_pages) > 0) {
        pages = std::min(pages, cache_.obtainable(group));
      }
    }
    if (pages == 1000) return;
    EXPECT_FALSE(sequence.reserve(pages * options_.page_tokens + 1));
    EXPECT_TRUE(sequence.reserve(pages * options_.page_tokens));
  }

  std::mt19937 random_;
  CacheOptions options_;
  bool roomy_;
  FakeDevice device_;
  KvCache cache_;
  std::list<Text> texts_;
  std::vector<Ids> past_;
  std::map<std::uint64_t, std::set<Ids>> known_, points_;
};

CacheOptions random_options(std::mt19937& random, bool roomy) {
  const auto roll = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  CacheOptions options{.page_tokens = 1 + roll(6)};
  const int kind = roll(6);  // full, both groups, sliding alone, full and states, states alone, all
  const auto pages = [&] { return roomy ? 20000 : (70 + options.page_tokens - 1) / options.page_tokens + roll(40); };
  if (kind == 0 || kind == 1 || kind == 3 || kind == 5) options.full_pages = pages();
  if (kind == 1 || kind == 2 || kind == 5) {
    options.window = 1 + roll(16);
    options.sliding_pages = roomy ? 20000 : 35 + roll(20);
  }
  if (kind >= 3) options.slots = roomy ? 5000 : 2 + roll(6);
  options.checkpoint_tokens = options.page_tokens * (1 + roll(4));
  return options;
}

void run(bool roomy, std::uint32_t first_seed, int scenarios) {
  std::int64_t reused = 0, refused = 0, evicted = 0, evicted_states = 0, forks = 0, copied = 0, shared = 0;
  for (int i = 0; i < scenarios && !testing::Test::HasFailure(); ++i) {
    const std::uint32_t seed = first_seed + static_cast<std::uint32_t>(i);
    std::mt19937 random(seed);
    const CacheOptions options = random_options(random, roomy);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": pages of " << options.page_tokens << ", "
                                    << options.full_pages << " full, " << options.sliding_pages << " sliding, window "
                                    << options.window << ", " << options.slots << " slots, checkpoints every "
                                    << options.checkpoint_tokens);
    Life life(seed, options, roomy);
    life.live(150);
    const CacheStatistics statistics = life.statistics();
    reused += life.reused;
    refused += life.refused;
    forks += life.forks;
    evicted += statistics.evicted_pages[0] + statistics.evicted_pages[1];
    evicted_states += statistics.evicted_states;
    copied += statistics.copied_pages[0] + statistics.copied_pages[1];
    shared += statistics.shared_pages;
  }
  EXPECT_GT(reused, scenarios);
  EXPECT_GT(forks, 0);
  EXPECT_GT(copied, 0);
  EXPECT_GT(shared, 0);
  EXPECT_EQ(refused > 0, !roomy);
  EXPECT_TRUE(roomy || (evicted > 0 && evicted_states > 0));
}

TEST(KvCacheProperty, LivesInTightPools) { run(false, 1, 2000); }
TEST(KvCacheProperty, LivesWhereNothingIsEvicted) { run(true, 100'000, 600); }

}  // namespace
}  // namespace adze::cache
