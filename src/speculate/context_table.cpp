#include "speculate/context_table.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace adze::speculate {
namespace {

constexpr std::size_t kWays = 4;
constexpr std::size_t kFirstSets = 32;

std::size_t first_way(std::uint64_t key, std::size_t ways) {
  return static_cast<std::size_t>(key) & (ways - kWays);  // ways: a power of two
}

}  // namespace

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

ContextTable::ContextTable() : keys_(kFirstSets * kWays), contexts_(kFirstSets * kWays) {}

std::size_t ContextTable::way_of(std::uint64_t key) const {
  const std::size_t first = first_way(key, keys_.size());
  for (std::size_t way = first; way < first + kWays; ++way) {
    if (keys_[way] == key && contexts_[way].total != 0) return way;
  }
  return keys_.size();
}

const Context* ContextTable::find(std::uint64_t key) const {
  const std::size_t way = way_of(key);
  return way == keys_.size() ? nullptr : &contexts_[way];
}

std::size_t ContextTable::make_way(std::uint64_t key) {
  if (2 * used_ >= keys_.size() && keys_.size() < kMostContexts) grow();
  const std::size_t first = first_way(key, keys_.size());
  std::size_t oldest = first;
  for (std::size_t way = first; way < first + kWays; ++way) {
    if (contexts_[way].total == 0) {
      oldest = way;
      break;
    }
    if (contexts_[way].last_used < contexts_[oldest].last_used) oldest = way;
  }
  used_ += contexts_[oldest].total == 0 ? 1 : 0;
  keys_[oldest] = key;
  contexts_[oldest] = {};
  return oldest;
}

// Every set becomes two, so none can overflow.
void ContextTable::grow() {
  std::vector<std::uint64_t> keys(2 * keys_.size());
  std::vector<Context> contexts(keys.size());
  for (std::size_t from = 0; from < keys_.size(); ++from) {
    if (contexts_[from].total == 0) continue;
    std::size_t to = first_way(keys_[from], keys.size());
    while (contexts[to].total != 0) ++to;
    keys[to] = keys_[from];
    contexts[to] = contexts_[from];
  }
  keys_ = std::move(keys);
  contexts_ = std::move(contexts);
}

void ContextTable::observe(std::uint64_t key, std::int32_t token, std::uint32_t position) {
  std::size_t way = way_of(key);
  if (way == keys_.size()) way = make_way(key);
  Context& context = contexts_[way];
  context.last_used = position;
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
  const std::size_t way = way_of(key);
  if (way == keys_.size()) return false;
  for (Continuation& c : contexts_[way].continuations) {
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
