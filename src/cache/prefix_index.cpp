#include "cache/prefix_index.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace adze::cache {
namespace {

using Ids = std::span<const std::int32_t>;

std::size_t common_beginning(Ids a, Ids b) {
  const std::size_t limit = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(limit), b.begin()).first - a.begin());
}

// The first child that does not stand before `ids`.
auto lower_bound(const std::vector<PrefixNode*>& children, Ids ids) {
  return std::lower_bound(children.begin(), children.end(), ids, [](const PrefixNode* child, Ids wanted) {
    return std::lexicographical_compare(child->ids.begin(), child->ids.end(), wanted.begin(), wanted.end());
  });
}

}  // namespace

void EvictedKeys::add(Digest key) {
  if (keys_.empty()) keys_.resize(limits::kMaxEvictedKeys);
  keys_[key.low % keys_.size()] = key;
}

void EvictedKeys::remove(Digest key) {
  if (contains(key)) keys_[key.low % keys_.size()] = {};
}

bool EvictedKeys::contains(Digest key) const { return !keys_.empty() && keys_[key.low % keys_.size()] == key; }

PrefixIndex::PrefixIndex(int page_tokens, std::int64_t window, std::span<PagePool, kGroups> pools, SlotPool& slots)
    : page_tokens_(page_tokens), window_(window), pools_(pools), slots_(&slots) {
  key_bytes_.resize(sizeof(Digest) + static_cast<std::size_t>(page_tokens) * sizeof(std::int32_t));
}

PrefixIndex::~PrefixIndex() {
  clear();
  ADZE_CHECK(nodes() == 0, "{} nodes are held by nobody's sequence", nodes());
}

Digest PrefixIndex::key_of(const PrefixNode& parent, Ids ids) {
  std::memcpy(key_bytes_.data(), &parent.key, sizeof(Digest));
  std::memcpy(key_bytes_.data() + sizeof(Digest), ids.data(), ids.size_bytes());
  return digest(std::span(key_bytes_).first(sizeof(Digest) + ids.size_bytes()));
}

// ---- holding ------------------------------------------------------------------------------------------------------

PrefixNode& PrefixIndex::hold_root(Digest digest) {
  PrefixNode*& root = roots_[digest];
  if (root == nullptr) {
    if (spare_.empty()) {
      root = &nodes_.emplace_back(*slots_);
    } else {
      root = spare_.back();
      spare_.pop_back();
    }
    root->key = digest;
  }
  ++root->holders;
  return *root;
}

void PrefixIndex::hold(PrefixNode& node) {
  if (node.holders++ == 0) unheld_.remove(node);
}

void PrefixIndex::let_go(PrefixNode& node) {
  ADZE_CHECK(node.holders > 0, "a node let go that nobody holds");
  if (--node.holders > 0) return;
  if (node.parent != nullptr) unheld_.touch(node);
  prune(&node);
}

void PrefixIndex::settle(PrefixNode& node) {
  const bool alone =
      node.has(Group::sliding) && pools_[index_of(Group::sliding)].references(node.page(Group::sliding)) == 1;
  if (!alone) sliding_.remove(node);
  if (alone && !node.sliding.in) sliding_.touch(node);
}

// ---- finding ------------------------------------------------------------------------------------------------------

PrefixNode* PrefixIndex::child(const PrefixNode& parent, Ids ids) const {
  const auto at = lower_bound(parent.children, ids);
  return at != parent.children.end() && std::ranges::equal((*at)->ids, ids) ? *at : nullptr;
}

// The child with the most ids of which all are a beginning of `ids`.
PrefixNode* PrefixIndex::longest_beginning(const PrefixNode& parent, Ids ids) const {
  while (!ids.empty()) {
    if (PrefixNode* exact = child(parent, ids)) return exact;
    const auto at = lower_bound(parent.children, ids);
    if (at == parent.children.begin()) return nullptr;
    // What begins `ids` and is longer than this would stand between the two.
    const PrefixNode* before = *(at - 1);
    ids = ids.first(common_beginning(before->ids, ids));
  }
  return nullptr;
}

std::int64_t PrefixIndex::longest_common(const PrefixNode& parent, Ids ids) const {
  const auto at = lower_bound(parent.children, ids);
  std::size_t longest = 0;
  if (at != parent.children.end()) longest = common_beginning((*at)->ids, ids);
  if (at != parent.children.begin()) longest = std::max(longest, common_beginning((*(at - 1))->ids, ids));
  return static_cast<std::int64_t>(longest);
}

// The first position that a row at `position` reads in sliding layers.
std::int64_t PrefixIndex::first_read(std::int64_t position) const {
  return std::max<std::int64_t>(position - window_ + 1, 0);
}

// Whether work can go on at position `end`, `common` ids into the node, when the sliding pages of the nodes before it
// are there from position `unbroken` on.
bool PrefixIndex::can_end(const PrefixNode& node, std::int64_t common, std::int64_t end, std::int64_t unbroken) const {
  if (slots_->capacity() > 0 && !(node.state.held() && common == std::ssize(node.ids))) return false;
  if (pools_[index_of(Group::sliding)].capacity() == 0) return true;
  return node.has(Group::sliding) && (unbroken == 0 || first_read(end) >= unbroken);
}

// The best end in a part of a page behind `parent`, which ends at `start`.
PrefixMatch PrefixIndex::inside(const PrefixNode& parent, Ids rest, std::int64_t start, std::int64_t unbroken) const {
  PrefixMatch best;
  const auto consider = [&](PrefixNode& node) {
    const auto common = static_cast<std::int64_t>(common_beginning(node.ids, rest));
    if (common < page_tokens_ && start + common > best.tokens && can_end(node, common, start + common, unbroken)) {
      best = {.tokens = start + common, .partial = &node};
    }
    return common;
  };
  if (slots_->capacity() > 0) {
    for (Ids part = rest; best.partial == nullptr;) {
      PrefixNode* tail = longest_beginning(parent, part);
      if (tail == nullptr) break;
      consider(*tail);
      part = part.first(tail->ids.size() - 1);
    }
    return best;
  }
  // The further from its place in the order, the less a child has in common with `rest`.
  auto right = lower_bound(parent.children, rest);
  auto left = right;
  for (int i = 0; i < limits::kMaxSiblingsCompared; ++i) {
    const bool more_left = left != parent.children.begin();
    const bool more_right = right != parent.children.end();
    if (!more_left && !more_right) break;
    const std::size_t before = more_left ? common_beginning((*(left - 1))->ids, rest) : 0;
    const std::size_t after = more_right ? common_beginning((*right)->ids, rest) : 0;
    if (start + static_cast<std::int64_t>(std::max(before, after)) <= std::max(best.tokens, start)) break;
    consider(before > after ? **--left : **right++);
  }
  return best;
}

PrefixMatch PrefixIndex::find(PrefixNode& root, Ids ids, std::int64_t limit, std::vector<PrefixNode*>& path) const {
  path.clear();
  PrefixMatch best;
  const auto page = static_cast<std::size_t>(page_tokens_);
  const PrefixNode* at = &root;
  std::int64_t matched = 0, unbroken = 0;
  while (true) {
    const Ids rest = ids.subspan(static_cast<std::size_t>(matched), static_cast<std::size_t>(limit - matched));
    PrefixNode* next = rest.size() >= page ? child(*at, rest.first(page)) : nullptr;
    const std::int64_t end = matched + page_tokens_;
    const bool ends = next != nullptr && can_end(*next, page_tokens_, end, unbroken);
    if (!ends && !rest.empty()) {
      const PrefixMatch part = inside(*at, rest.first(std::min(rest.size(), page)), matched, unbroken);
      if (part.tokens > best.tokens) best = part;
    }
    if (next == nullptr) {
      best.known = matched + longest_common(*at, rest);
      break;
    }
    path.push_back(next);
    if (ends) best = {.tokens = end};
    if (!next->has(Group::sliding)) unbroken = end;
    matched = end;
    at = next;
  }
  best.deepest = at;
  path.resize(static_cast<std::size_t>(best.tokens) / page);
  return best;
}

PrefixNode* PrefixIndex::covering(const PrefixNode& parent, Ids tail) const {
  int compared = 0;
  for (auto at = lower_bound(parent.children, tail);
       at != parent.children.end() && compared < limits::kMaxSiblingsCompared; ++at, ++compared) {
    if (common_beginning((*at)->ids, tail) < tail.size()) break;
    if (useful(**at)) return *at;
  }
  return nullptr;
}

bool PrefixIndex::other_root_knows(const PrefixNode& root, Ids ids) const {
  int compared = 0;
  for (const auto& [digest, other] : roots_) {
    if (other == &root) continue;
    if (longest_common(*other, ids) == std::ssize(ids)) return true;
    if (++compared == limits::kMaxRootsCompared) break;
  }
  return false;
}

bool PrefixIndex::was_evicted(const PrefixNode& parent, Ids ids) {
  if (evicted_.empty()) return false;
  ids = ids.first(std::min(ids.size(), static_cast<std::size_t>(page_tokens_)));
  for (; !ids.empty(); ids = ids.first(ids.size() - 1)) {
    if (evicted_.contains(key_of(parent, ids))) return true;
  }
  return false;
}

// ---- growing ------------------------------------------------------------------------------------------------------

bool PrefixIndex::make_room_for_node() {
  // Where every node has a page of full layers, the pool is the limit.
  if (pools_[index_of(Group::full)].capacity() > 0) return true;
  while (nodes() >= limits::kMaxPagelessNodes) {
    if (unheld_.front() == nullptr) return false;
    prune(give_up(*unheld_.front()));
  }
  return true;
}

PrefixNode& PrefixIndex::add(PrefixNode& parent, Ids ids) {
  if (spare_.empty()) spare_.push_back(&nodes_.emplace_back(*slots_));
  PrefixNode& node = *spare_.back();
  spare_.pop_back();
  node.parent = &parent;
  node.ids.assign(ids.begin(), ids.end());
  node.key = key_of(parent, ids);
  node.holders = 1;
  evicted_.remove(node.key);
  parent.children.insert(lower_bound(parent.children, ids), &node);
  return node;
}

void PrefixIndex::set_page(PrefixNode& node, Group group, PageHandle page) {
  PagePool& pool = pools_[index_of(group)];
  pool.share(page);
  if (node.has(group)) pool.release(node.page(group));
  node.pages[index_of(group)] = page;
  settle(node);
}

void PrefixIndex::set_state(PrefixNode& node, StateSlot state, bool proven) {
  release_state(node);
  node.state = std::move(state);
  node.proven = proven;
  (proven ? ends_ : checkpoints_).touch(node);
}

void PrefixIndex::touch_state(PrefixNode& node) {
  if (!node.state.held()) return;
  if (!node.proven) checkpoints_.remove(node);
  node.proven = true;
  ends_.touch(node);
}

StateSlot PrefixIndex::take_state(PrefixNode& node) {
  StateSlot state = std::move(node.state);
  release_state(node);
  return state;
}

void PrefixIndex::drop_beginnings_of(PrefixNode& node) {
  // A tail with a state is an end of its own.
  if (slots_->capacity() > 0) return;
  Ids part = Ids(node.ids).first(node.ids.size() - 1);
  while (PrefixNode* tail = longest_beginning(*node.parent, part)) {
    part = part.first(tail->ids.size() - 1);
    if (tail->holders == 0) remove(*tail);
  }
}

// ---- giving up ----------------------------------------------------------------------------------------------------

std::int64_t PrefixIndex::evictable(Group group) const {
  switch (group) {
    case Group::full: return pools_[index_of(group)].capacity() > 0 ? unheld_.size() : 0;
    case Group::sliding: return sliding_.size();
  }
  return 0;
}

std::int32_t PrefixIndex::evictable_states() const {
  return static_cast<std::int32_t>(checkpoints_.size() + ends_.size());
}

// Whether work can go on at the end of the node, as far as the node itself is concerned.
bool PrefixIndex::useful(const PrefixNode& node) const {
  if (slots_->capacity() > 0 && !node.state.held()) return false;
  return pools_[index_of(Group::sliding)].capacity() == 0 || node.has(Group::sliding);
}

// Removes the node, and then its parent and so on, while nothing can go on from there nor leads on from there.
void PrefixIndex::prune(PrefixNode* node) {
  while (node->holders == 0 && node->children.empty()) {
    if (node->parent == nullptr) {
      roots_.erase(node->key);
      spare_.push_back(node);
      return;
    }
    if (useful(*node)) return;
    node = give_up(*node);
  }
}

void PrefixIndex::release_state(PrefixNode& node) {
  (node.proven ? ends_ : checkpoints_).remove(node);
  node.state.release();
  node.proven = false;
}

PrefixNode* PrefixIndex::give_up(PrefixNode& node) {
  evicted_.add(node.key);
  for (const Group group : kEachGroup) counts_.pages[index_of(group)] += node.has(group) ? 1 : 0;
  counts_.states += node.state.held() ? 1 : 0;
  return remove(node);
}

// Returns the parent.
PrefixNode* PrefixIndex::remove(PrefixNode& node) {
  ADZE_CHECK(node.holders == 0 && node.children.empty(), "a node removed with {} holders and {} children", node.holders,
             node.children.size());
  unheld_.remove(node);
  sliding_.remove(node);
  release_state(node);
  for (const Group group : kEachGroup) {
    if (node.has(group)) pools_[index_of(group)].release(node.page(group));
    node.pages[index_of(group)] = {};
  }
  PrefixNode* parent = node.parent;
  parent->children.erase(lower_bound(parent->children, node.ids));
  node.parent = nullptr;
  spare_.push_back(&node);
  return parent;
}

void PrefixIndex::evict(Group group) {
  switch (group) {
    case Group::full: prune(give_up(*unheld_.front())); return;
    case Group::sliding: {
      PrefixNode& node = *sliding_.front();
      ++counts_.pages[index_of(group)];
      drop_sliding(node);
      prune(&node);
      return;
    }
  }
}

void PrefixIndex::drop_sliding(PrefixNode& node) {
  pools_[index_of(Group::sliding)].release(node.page(Group::sliding));
  node.pages[index_of(Group::sliding)] = {};
  sliding_.remove(node);
}

bool PrefixIndex::evict_state(bool any, const PrefixNode* spare) {
  PrefixNode* node = checkpoints_.front();
  if (node == spare && node != nullptr) node = node->stated.after;
  if (node == nullptr && any) {
    node = ends_.front();
    if (node == spare && node != nullptr) node = node->stated.after;
  }
  if (node == nullptr) return false;
  ++counts_.states;
  release_state(*node);
  prune(node);
  return true;
}

bool PrefixIndex::yield(PrefixNode& node, Group group) {
  switch (group) {
    case Group::full:
      ADZE_CHECK(node.holders == 1, "a node with {} holders gives up its page to one", node.holders);
      node.holders = 0;
      prune(give_up(node));
      return true;
    case Group::sliding:
      ++counts_.pages[index_of(group)];
      drop_sliding(node);
      return false;
  }
  return false;
}

void PrefixIndex::clear() {
  while (PrefixNode* node = unheld_.front()) {
    PrefixNode* parent = remove(*node);
    if (parent->parent == nullptr) prune(parent);
  }
  for (PrefixNode& node : nodes_) {
    if (node.state.held()) release_state(node);
    if (node.sliding.in) drop_sliding(node);
  }
  evicted_.clear();
}

}  // namespace adze::cache
