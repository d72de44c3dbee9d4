#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "cache/kv_cache.hpp"

namespace adze::cache {
namespace {

std::string_view layers_of(Group group) {
  switch (group) {
    case Group::full: return "full-attention";
    case Group::sliding: return "sliding-window";
  }
  return "";
}

}  // namespace

KvSequence::KvSequence(KvCache& cache, PrefixNode& root)
    : cache_(&cache),
      root_(&root),
      lists_{PageList(cache.pool(Group::full)), PageList(cache.pool(Group::sliding))},
      state_(cache.slots_) {
  ++cache.open_;
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      root_(std::exchange(other.root_, nullptr)),
      path_(std::exchange(other.path_, {})),
      partial_(std::exchange(other.partial_, nullptr)),
      lists_(std::move(other.lists_)),
      state_(std::move(other.state_)),
      pages_(std::exchange(other.pages_, 0)),
      length_(std::exchange(other.length_, 0)),
      pending_(other.pending_),
      left_(other.left_),
      tried_(other.tried_),
      branch_(other.branch_) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this == &other) return *this;
  close();
  cache_ = std::exchange(other.cache_, nullptr);
  root_ = std::exchange(other.root_, nullptr);
  path_ = std::exchange(other.path_, {});
  partial_ = std::exchange(other.partial_, nullptr);
  lists_ = std::move(other.lists_);
  state_ = std::move(other.state_);
  pages_ = std::exchange(other.pages_, 0);
  length_ = std::exchange(other.length_, 0);
  pending_ = other.pending_;
  left_ = other.left_;
  tried_ = other.tried_;
  branch_ = other.branch_;
  return *this;
}

KvSequence::~KvSequence() { close(); }

void KvSequence::close() {
  if (cache_ == nullptr) return;
  clear();
  cache_->index_.let_go(*root_);
  --cache_->open_;
  cache_ = nullptr;
}

// ---- room ---------------------------------------------------------------------------------------------------------

std::int64_t KvSequence::pages_for(std::int64_t positions) const {
  const int page = cache_->options_.page_tokens;
  return (positions + page - 1) / page;
}

// The node whose pages entry i of the lists shares, if there is one.
PrefixNode* KvSequence::node_of(std::size_t i) const {
  if (i < path_.size()) return path_[i];
  return i == path_.size() ? partial_ : nullptr;
}

int KvSequence::other_sequences(Group group, std::size_t i) const {
  const PageList& list = lists_[index_of(group)];
  if (!list.has(i)) return 0;
  const PrefixNode* node = node_of(i);
  const bool by_index = node != nullptr && node->page(group) == list.at(i);
  return list.references(i) - 1 - (by_index ? 1 : 0);
}

// Positions that rows may be written to: a page that is shared is no room.
std::int64_t KvSequence::room() const {
  const auto last = static_cast<std::size_t>(length_ / cache_->options_.page_tokens);
  for (const Group group : kEachGroup) {
    const PageList& list = lists_[index_of(group)];
    if (list.has(last) && list.references(last) > 1) return length_;
  }
  // A model of states alone shares no page, only the knowledge of what is in one.
  if (partial_ != nullptr) return length_;
  return pages_ * cache_->options_.page_tokens;
}

std::int64_t KvSequence::needs(Group group, std::int64_t length) const {
  if (!cache_->has(group) || length <= length_) return 0;
  const auto last = static_cast<std::size_t>(length_ / cache_->options_.page_tokens);
  return std::max<std::int64_t>(pages_for(length) - pages_, 0) + (other_sequences(group, last) > 0 ? 1 : 0);
}

Status KvSequence::reserve(std::int64_t length) {
  if (state_.held() == state_.needed() && length <= room()) return {};
  release_left();
  for (const Group group : kEachGroup) {
    const std::int64_t need = needs(group, length);
    const std::int64_t have = cache_->obtainable(group);
    if (need > have) {
      return fail(ErrorCode::out_of_memory,
                  fmt::format("{} positions need {} more pages of {} KV, but only {} of {} can be had", length, need,
                              layers_of(group), have, cache_->pool(group).capacity()),
                  "end other requests, or load with a larger context");
    }
  }
  if (state_.needed() && !state_.held() && !cache_->take_slot(state_, true)) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("all {} slots of recurrent state are in use by other sequences", cache_->slots_.capacity()),
                "end other requests");
  }
  if (length <= length_) return {};
  for (; pages_ < pages_for(length); ++pages_) {
    for (const Group group : kEachGroup) {
      if (cache_->has(group)) lists_[index_of(group)].push(cache_->take(group));
    }
  }
  own_written_page();
  return {};
}

// The page that the next row writes into is held by this sequence alone afterwards. What the index shares of it is left
// to the index while another page can be had, and taken back otherwise.
void KvSequence::own_written_page() {
  const auto last = static_cast<std::size_t>(length_ / cache_->options_.page_tokens);
  for (const Group group : kEachGroup) {
    PageList& list = lists_[index_of(group)];
    if (!list.has(last) || list.references(last) == 1) continue;
    if (cache_->obtainable(group) > 0) {
      const PageHandle own = cache_->take(group);
      cache_->copy_page(group, list.at(last), own);
      list.replace(last, own);
      if (partial_ != nullptr) cache_->index_.settle(*partial_);
    } else if (cache_->index_.yield(*partial_, group)) {
      partial_ = nullptr;
    }
  }
  if (partial_ != nullptr) cache_->index_.let_go(*std::exchange(partial_, nullptr));
}

void KvSequence::commit(std::int64_t positions, std::int64_t pending) {
  ADZE_CHECK(positions >= 0 && length_ + positions <= room(), "{} positions committed at {}, room for {}", positions,
             length_, room());
  ADZE_CHECK(pending >= 0 && pending <= positions, "{} of {} positions are pending", pending, positions);
  length_ += positions;
  if (state_.needed()) pending_ = pending;
}

void KvSequence::drop_page(Group group, std::size_t i) {
  lists_[index_of(group)].release(i);
  if (PrefixNode* node = node_of(i); node != nullptr && group == Group::sliding) cache_->index_.settle(*node);
}

void KvSequence::release_left() {
  if (!cache_->has(Group::sliding)) return;
  const std::int64_t first = (length_ - cache_->options_.window + 1) / cache_->options_.page_tokens;
  for (; left_ < first; ++left_) drop_page(Group::sliding, static_cast<std::size_t>(left_));
}

void KvSequence::shrink() {
  for (; pages_ > pages_for(length_); --pages_) {
    for (const Group group : kEachGroup) {
      if (cache_->has(group)) lists_[index_of(group)].pop();
    }
  }
}

void KvSequence::clear() {
  // From the end: a node is let go before its parent.
  for (; pages_ > 0; --pages_) {
    const auto i = static_cast<std::size_t>(pages_ - 1);
    PrefixNode* node = node_of(i);
    for (const Group group : kEachGroup) {
      if (cache_->has(group)) lists_[index_of(group)].pop();
    }
    if (node == nullptr) continue;
    cache_->index_.settle(*node);
    cache_->index_.let_go(*node);
  }
  path_.clear();
  partial_ = nullptr;
  state_.release();
  length_ = pending_ = left_ = tried_ = branch_ = 0;
}

// ---- reuse --------------------------------------------------------------------------------------------------------

Reuse KvSequence::attach(std::span<const std::int32_t> ids, std::int64_t below) {
  ADZE_CHECK(pages_ == 0 && length_ == 0 && !state_.held(), "a sequence of {} positions attached", length_);
  const std::int64_t limit = std::clamp<std::int64_t>(below - 1, 0, std::ssize(ids));
  PrefixIndex& index = cache_->index_;
  const PrefixMatch match = index.find(*root_, ids, limit, path_);
  const Reuse reuse = {.tokens = match.tokens, .why_not_more = cache_->why_not_more(*root_, ids, limit, match)};

  partial_ = match.partial;
  for (PrefixNode* node : path_) index.hold(*node);
  if (partial_ != nullptr) index.hold(*partial_);
  length_ = match.tokens;
  pages_ = pages_for(length_);
  tried_ = std::ssize(path_);
  const int page = cache_->options_.page_tokens;
  if (cache_->has(Group::sliding)) left_ = std::max<std::int64_t>((length_ - cache_->options_.window + 1) / page, 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(pages_); ++i) {
    PrefixNode& node = *node_of(i);
    if (cache_->has(Group::full)) lists_[index_of(Group::full)].push_shared(node.page(Group::full));
    if (!cache_->has(Group::sliding)) continue;
    if (static_cast<std::int64_t>(i) < left_) {
      lists_[index_of(Group::sliding)].push({});
    } else {
      lists_[index_of(Group::sliding)].push_shared(node.page(Group::sliding));
      index.settle(node);
    }
  }
  if (state_.needed()) {
    if (length_ > 0) take_state_from(partial_ != nullptr ? *partial_ : *path_.back());
    const std::int64_t known_edge = match.known - match.known % page;
    branch_ = known_edge > length_ ? known_edge : 0;
  }

  CacheStatistics& counts = cache_->statistics_;
  ++counts.lookups;
  counts.hits += reuse.tokens > 0 ? 1 : 0;
  counts.asked_tokens += limit;
  counts.reused_tokens += reuse.tokens;
  ++counts.reasons[static_cast<std::size_t>(reuse.why_not_more)];
  return reuse;
}

// A copy of the node's state; where no slot is left for one, the state itself.
void KvSequence::take_state_from(PrefixNode& node) {
  cache_->index_.touch_state(node);
  if (cache_->take_slot(state_, true, &node)) {
    cache_->device_->copy_state(node.state.index(), state_.index());
  } else {
    state_ = cache_->index_.take_state(node);
  }
}

std::int64_t KvSequence::next_stop(std::int64_t prompt_length) const {
  if (!state_.needed()) return prompt_length;
  const std::int64_t spacing = cache_->options_.checkpoint_tokens;
  std::int64_t stop = std::min(prompt_length, length_ - length_ % spacing + spacing);
  for (const std::int64_t other : {branch_, prompt_length - 1}) {
    if (other > length_) stop = std::min(stop, other);
  }
  return stop;
}

Result<KvSequence> KvSequence::fork() const {
  ADZE_CHECK(pending_ == 0, "a sequence forked of which {} positions are not in its state yet", pending_);
  KvSequence copy(*cache_, *root_);
  cache_->index_.hold(*root_);
  if (state_.held()) {
    if (!cache_->take_slot(copy.state_, true)) {
      return fail(
          ErrorCode::out_of_memory,
          fmt::format("all {} slots of recurrent state are in use by other sequences", cache_->slots_.capacity()),
          "end other requests");
    }
    cache_->device_->copy_state(state_.index(), copy.state_.index());
  }
  copy.path_ = path_;
  copy.partial_ = partial_;
  copy.length_ = length_;
  copy.pages_ = pages_for(length_);
  copy.left_ = left_;
  copy.tried_ = tried_;
  copy.branch_ = branch_;
  for (PrefixNode* node : path_) cache_->index_.hold(*node);
  if (partial_ != nullptr) cache_->index_.hold(*partial_);
  for (const Group group : kEachGroup) {
    if (!cache_->has(group)) continue;
    for (std::size_t i = 0; i < static_cast<std::size_t>(copy.pages_); ++i) {
      const PageList& own = lists_[index_of(group)];
      if (own.has(i)) {
        copy.lists_[index_of(group)].push_shared(own.at(i));
      } else {
        copy.lists_[index_of(group)].push({});
      }
    }
  }
  return copy;
}

}  // namespace adze::cache
