#include "speculate/context_table.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace adze::speculate {
const Continuation* Context::best() const {
  const Continuation* best = nullptr;
  for (const Continuation& c : continuations) {
    if (c.count == 0) continue;
    if (best == nullptr || c.count > best->count || (c.count == best->count && c.last_seen > best->last_seen))
      best = &c;
  }
  return best;
}

double Context::confidence(const Continuation& c) const {
  const double share = static_cast<double>(c.count) / static_cast<double>(total);
  if (c.accepted == 0 && c.rejected == 0) return share;
  return std::min(1.0, share * 2.0 * (c.accepted + 1.0) / (c.accepted + c.rejected + 2.0));
}

ContextTable::ContextTable() : sets_(kFirstSets), contexts_(kFirstSets * kWays) {}

std::ptrdiff_t ContextTable::find_index(std::uint64_t key) const {
  const std::size_t at = static_cast<std::size_t>(key) & (sets_.size() - 1);
  const Set& set = sets_[at];
  for (std::size_t way = 0; way < kWays; ++way) {
    if (set.keys[way] == key && set.used[way] != 0) return static_cast<std::ptrdiff_t>(at * kWays + way);
  }
  return -1;
}

const Context* ContextTable::find(std::uint64_t key) const {
  const std::ptrdiff_t at = find_index(key);
  return at < 0 ? nullptr : &contexts_[static_cast<std::size_t>(at)];
}

// A free way is one that was never used.
std::size_t ContextTable::make(std::uint64_t key) {
  if (2 * used_ >= contexts_.size() && contexts_.size() < kMostContexts) grow();
  Set& set = set_of(key);
  const auto oldest = static_cast<std::size_t>(std::ranges::min_element(set.used) - set.used.begin());
  used_ += set.used[oldest] == 0 ? 1 : 0;
  set.keys[oldest] = key;
  const std::size_t at = static_cast<std::size_t>(&set - sets_.data()) * kWays + oldest;
  contexts_[at] = {};
  return at;
}

// Every set becomes two, so none can overflow.
void ContextTable::grow() {
  const std::vector<Set> sets = std::exchange(sets_, std::vector<Set>(2 * sets_.size()));
  const std::vector<Context> contexts = std::exchange(contexts_, std::vector<Context>(2 * contexts_.size()));
  for (std::size_t from = 0; from < contexts.size(); ++from) {
    const Set& old = sets[from / kWays];
    const std::size_t old_way = from % kWays;
    if (old.used[old_way] == 0) continue;
    Set& set = set_of(old.keys[old_way]);
    const auto way = static_cast<std::size_t>(std::ranges::find(set.used, 0u) - set.used.begin());
    set.keys[way] = old.keys[old_way];
    set.used[way] = old.used[old_way];
    contexts_[static_cast<std::size_t>(&set - sets_.data()) * kWays + way] = contexts[from];
  }
}

void ContextTable::observe(std::uint64_t key, std::int32_t token, std::uint32_t position) {
  const std::ptrdiff_t known = find_index(key);
  const std::size_t at = known >= 0 ? static_cast<std::size_t>(known) : make(key);
  sets_[at / kWays].used[at % kWays] = position + 1;
  Context& context = contexts_[at];
  ++context.total;
  Continuation* weakest = context.continuations.data();
  for (Continuation& c : context.continuations) {
    if (c.count != 0 && c.token == token) {
      c.last_seen = position;
      if (++c.count < std::numeric_limits<std::uint16_t>::max()) return;
      for (Continuation& other : context.continuations) other.count /= 2;
      context.total /= 2;
      return;
    }
    if (std::pair(c.count, c.last_seen) < std::pair(weakest->count, weakest->last_seen)) weakest = &c;
  }
  *weakest = {.token = token, .last_seen = position, .count = 1};
}

bool ContextTable::feed_back(std::uint64_t key, std::int32_t token, bool accepted) {
  const std::ptrdiff_t at = find_index(key);
  if (at < 0) return false;
  for (Continuation& c : contexts_[static_cast<std::size_t>(at)].continuations) {
    if (c.count == 0 || c.token != token) continue;
    if (++(accepted ? c.accepted : c.rejected) == 32) {  // the latest drafts count most
      c.accepted /= 2;
      c.rejected /= 2;
    }
    return true;
  }
  return false;
}

}  // namespace adze::speculate
