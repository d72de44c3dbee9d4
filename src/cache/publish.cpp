// How what a sequence computed becomes known to the index. The index never holds a page that a sequence which is not a
// holder of its node shares, so that "held by the index alone" can be read off the nodes.
#include <utility>

#include "base/check.hpp"
#include "cache/kv_cache.hpp"

namespace adze::cache {

void KvSequence::publish(std::span<const std::int32_t> ids) {
  ADZE_CHECK(std::ssize(ids) >= length_, "{} ids published of {} positions", ids.size(), length_);
  const std::int64_t complete = length_ / cache_->options_.page_tokens;
  if (complete > tried_) {
    tried_ = complete;
    while (std::ssize(path_) < complete && publish_page(ids)) {
    }
    keep_checkpoint();
  }
  release_left();
}

// The first page that is not published yet. False: there is no room for it in the index now.
bool KvSequence::publish_page(std::span<const std::int32_t> ids) {
  PrefixIndex& index = cache_->index_;
  const auto page = static_cast<std::size_t>(cache_->options_.page_tokens);
  const std::size_t i = path_.size();
  PrefixNode& parent = *parent_of(i);
  const auto tokens = ids.subspan(i * page, page);
  if (PrefixNode* known = index.child(parent, tokens)) {
    index.hold(*known);
    adopt(*known, i);
    path_.push_back(known);
    return true;
  }
  if (!index.make_room_for_node() || !own_for_index(i)) return false;
  PrefixNode& node = index.add(parent, tokens);
  path_.push_back(&node);
  for (const Group group : kEachGroup) {
    if (lists_[index_of(group)].has(i)) index.set_page(node, group, lists_[index_of(group)].at(i));
  }
  index.drop_beginnings_of(node);
  return true;
}

// Entry i becomes the node's pages, which hold equal bits. What the node lacks, it gets.
void KvSequence::adopt(PrefixNode& node, std::size_t i) {
  for (const Group group : kEachGroup) {
    PageList& list = lists_[index_of(group)];
    if (!list.has(i)) continue;
    if (!node.has(group)) {
      if (list.references(i) == 1) cache_->index_.set_page(node, group, list.at(i));
    } else if (list.at(i) != node.page(group)) {
      cache_->pool(group).share(node.page(group));
      list.replace(i, node.page(group));
      ++cache_->statistics_.shared_pages;
    }
  }
  cache_->index_.settle(node);
}

// Nobody else has the pages of entry i, of which there is no node. A fork's are copied, if pages can be had.
bool KvSequence::own_for_index(std::size_t i) {
  for (const Group group : kEachGroup) {
    PageList& list = lists_[index_of(group)];
    if (!list.has(i) || list.references(i) == 1) continue;
    if (cache_->obtainable(group) == 0) return false;
    const PageHandle own = cache_->take(group);
    cache_->copy_page(group, list.at(i), own);
    list.replace(i, own);
  }
  return true;
}

void KvSequence::keep_checkpoint() {
  if (!state_.held() || pending_ > 0 || path_.empty()) return;
  const CacheOptions& options = cache_->options_;
  if (std::ssize(path_) * options.page_tokens != length_) return;  // not at a page's edge
  const bool branch = length_ == branch_;
  if ((length_ % options.checkpoint_tokens != 0 && !branch) || path_.back()->state.held()) return;
  StateSlot slot(cache_->slots_);
  if (!cache_->take_slot(slot, branch)) return;
  cache_->device_->copy_state(state_.index(), slot.index());
  cache_->index_.set_state(*path_.back(), std::move(slot), branch);
  ++cache_->statistics_.kept_states;
}

void KvSequence::publish_tail(std::span<const std::int32_t> ids, State how) {
  publish(ids);
  put_tail(ids, how);
  if (how == State::hand_over) clear();
}

void KvSequence::put_tail(std::span<const std::int32_t> ids, State how) {
  const std::int64_t end = length_ - pending_;
  const auto page = static_cast<std::size_t>(end / cache_->options_.page_tokens);
  if (end == 0 || path_.size() < page) return;
  const std::size_t start = page * static_cast<std::size_t>(cache_->options_.page_tokens);
  const auto tail = ids.subspan(start, static_cast<std::size_t>(end) - start);
  PrefixNode& parent = *parent_of(page);
  PrefixIndex& index = cache_->index_;
  if (state_.needed()) {
    put_state_tail(parent, tail, page, how);
  } else if (!tail.empty()) {
    if (PrefixNode* known = index.covering(parent, tail)) {
      index.hold(*known);
      index.let_go(*known);  // now it is the most recently used
    } else if (PrefixNode* lacking = partial_ == nullptr ? index.child(parent, tail) : nullptr) {
      index.hold(*lacking);
      adopt(*lacking, page);
      partial_ = lacking;
    } else {
      new_tail(parent, tail, page);
    }
  }
}

// Work on a model with states can go on here only with the state, so one comes with the tail, or there is no tail.
void KvSequence::put_state_tail(PrefixNode& parent, std::span<const std::int32_t> tail, std::size_t page, State how) {
  PrefixIndex& index = cache_->index_;
  PrefixNode* node = tail.empty() ? &parent : index.child(parent, tail);
  if (node != nullptr && node->state.held()) {
    index.touch_state(*node);
    index.hold(*node);
    index.let_go(*node);
    return;
  }
  StateSlot slot(cache_->slots_);
  if (how == State::hand_over) {
    slot = std::move(state_);
  } else if (cache_->take_slot(slot, true)) {
    cache_->device_->copy_state(state_.index(), slot.index());
  } else {
    return;
  }
  const bool inside = node == nullptr && page < path_.size();
  if (node == nullptr) node = inside ? copied_tail(parent, tail, page) : new_tail(parent, tail, page);
  if (node == nullptr) return;
  index.set_state(*node, std::move(slot), true);
  ++cache_->statistics_.kept_states;
  if (inside) index.let_go(*node);
}

// A node of the page that is not complete, which the sequence holds from here on.
PrefixNode* KvSequence::new_tail(PrefixNode& parent, std::span<const std::int32_t> tail, std::size_t page) {
  PrefixIndex& index = cache_->index_;
  if (partial_ != nullptr || !index.make_room_for_node() || !own_for_index(page)) return nullptr;
  partial_ = &index.add(parent, tail);
  for (const Group group : kEachGroup) {
    if (lists_[index_of(group)].has(page)) index.set_page(*partial_, group, lists_[index_of(group)].at(page));
  }
  index.drop_beginnings_of(*partial_);
  return partial_;
}

// The state stands some rows before length(), in a page that was completed since: that page has a node already, so the
// tail gets a copy. It is held once. There is none where a window is so short that the page has left it.
PrefixNode* KvSequence::copied_tail(PrefixNode& parent, std::span<const std::int32_t> tail, std::size_t page) {
  PrefixIndex& index = cache_->index_;
  if (!index.make_room_for_node()) return nullptr;
  for (const Group group : kEachGroup) {
    if (cache_->has(group) && (!lists_[index_of(group)].has(page) || cache_->obtainable(group) == 0)) return nullptr;
  }
  PrefixNode& node = index.add(parent, tail);
  for (const Group group : kEachGroup) {
    if (!cache_->has(group)) continue;
    const PageHandle copy = cache_->take(group);
    cache_->copy_page(group, lists_[index_of(group)].at(page), copy);
    index.set_page(node, group, copy);
    cache_->pool(group).release(copy);
  }
  index.settle(node);
  return &node;
}

}  // namespace adze::cache
