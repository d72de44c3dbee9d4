// What followed each context of a fixed number of tokens: a set-associative table like a processor's cache. A context's
// hash names a set of four ways; a new context takes a free way, or the one that was used longest ago. So pruning costs
// nothing and the table stays bounded, however long the text is. A hash of 64 bits stands for the context: if two ever
// met, a draft would be poor, and no text wrong.
//
// Memory: 64 bytes per context, kMostContexts of them at most; small texts have small tables.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace adze::speculate {

struct Continuation {
  std::int32_t token = 0;
  std::uint32_t last_seen = 0;              // position in the text
  std::uint16_t count = 0;                  // 0: nothing
  std::uint8_t accepted = 0, rejected = 0;  // as a draft
};

struct Context {
  std::uint32_t total = 0;  // continuations ever seen, those that were pushed out included
  std::array<Continuation, 4> continuations{};

  // The one seen most often, the latest of several; nullptr without any.
  const Continuation* best() const;
  // How likely it is: its share of all, corrected by what drafts of it came to.
  double confidence(const Continuation& continuation) const;
};

class ContextTable {
 public:
  static constexpr std::size_t kMostContexts = 4096;

  ContextTable();
  // `token` stood at `position` behind the context `key`.
  void observe(std::uint64_t key, std::int32_t token, std::uint32_t position);
  const Context* find(std::uint64_t key) const;
  // A draft of `token` behind the context was accepted or not. Returns whether the table knows of the two.
  bool feed_back(std::uint64_t key, std::int32_t token, bool accepted);

  std::size_t contexts() const { return used_; }
  std::size_t memory_bytes() const { return sets_.size() * (sizeof(Set) + kWays * sizeof(Context)); }

 private:
  static constexpr std::size_t kWays = 4;
  // Apart from what the ways hold: a search reads one line of memory, and one more where it finds something.
  struct Set {
    std::array<std::uint64_t, kWays> keys{};
    std::array<std::uint32_t, kWays> used{};  // 1 + position of the last use; 0: the way is free
  };
  static constexpr std::size_t kFirstSets = 32;

  Set& set_of(std::uint64_t key) { return sets_[static_cast<std::size_t>(key) & (sets_.size() - 1)]; }
  // Index into contexts_; -1: not here.
  std::ptrdiff_t find_index(std::uint64_t key) const;
  std::size_t make(std::uint64_t key);
  void grow();

  std::vector<Set> sets_;          // a power of two
  std::vector<Context> contexts_;  // [sets, kWays]
  std::size_t used_ = 0;
};

}  // namespace adze::speculate
