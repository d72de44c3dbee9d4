#include "cache/kv_cache.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace adze::cache {

std::string_view miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::none: return "none";
    case MissReason::new_prefix: return "new_prefix";
    case MissReason::evicted: return "evicted";
    case MissReason::other_settings: return "other_settings";
    case MissReason::no_state: return "no_state";
  }
  return "";
}

KvCache::KvCache(const CacheOptions& options, Device& device)
    : options_(options),
      device_(&device),
      pools_{PagePool(options.full_pages), PagePool(options.sliding_pages)},
      slots_(options.slots),
      index_(options.page_tokens, options.window, pools_, slots_) {
  ADZE_CHECK(options.page_tokens > 0, "{} positions per page", options.page_tokens);
  ADZE_CHECK(options.checkpoint_tokens > 0 && options.checkpoint_tokens % options.page_tokens == 0,
             "states kept every {} positions, pages of {}", options.checkpoint_tokens, options.page_tokens);
  ADZE_CHECK(options.sliding_pages == 0 || options.window > 0, "sliding pages for a window of {}", options.window);
}

KvCache::~KvCache() { ADZE_CHECK(open_ == 0, "{} sequences outlive their cache", open_); }

KvSequence KvCache::open(Digest root) { return {*this, index_.hold_root(root)}; }

std::int64_t KvCache::obtainable(Group group) const { return pool(group).available() + index_.evictable(group); }

std::int32_t KvCache::obtainable_slots() const { return slots_.available() + index_.evictable_states(); }

CacheStatistics KvCache::statistics() const {
  CacheStatistics all = statistics_;
  all.evicted_pages = index_.given_up().pages;
  all.evicted_states = index_.given_up().states;
  return all;
}

void KvCache::clear() { index_.clear(); }

PageHandle KvCache::take(Group group) {
  ADZE_CHECK(obtainable(group) > 0, "a page taken when none is to be had");
  while (pool(group).available() == 0) index_.evict(group);
  return *pool(group).take();
}

bool KvCache::take_slot(StateSlot& slot, bool any, const PrefixNode* spare) {
  while (slots_.available() == 0) {
    if (!index_.evict_state(any, spare)) return false;
  }
  return slot.take().has_value();
}

void KvCache::copy_page(Group group, PageHandle from, PageHandle to) {
  device_->copy_page(group, from.index, to.index);
  ++statistics_.copied_pages[index_of(group)];
}

MissReason KvCache::why_not_more(const PrefixNode& root, std::span<const std::int32_t> ids, std::int64_t limit,
                                 const PrefixMatch& match) {
  if (match.tokens == limit) return MissReason::none;
  // Without recurrent states, what keeps work from going on at known tokens is a sliding page that left.
  if (match.known > match.tokens) return slots_.capacity() > 0 ? MissReason::no_state : MissReason::evicted;
  const std::int64_t edge = match.known - match.known % options_.page_tokens;
  if (index_.was_evicted(*match.deepest, ids.subspan(static_cast<std::size_t>(edge)))) return MissReason::evicted;
  const auto first_page = static_cast<std::size_t>(std::min<std::int64_t>(limit, options_.page_tokens));
  if (match.known == 0 && index_.other_root_knows(root, ids.first(first_page))) return MissReason::other_settings;
  return MissReason::new_prefix;
}

}  // namespace adze::cache
