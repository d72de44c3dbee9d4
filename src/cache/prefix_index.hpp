// What is known of texts that were computed: a tree of pages. A node is one page's worth of tokens behind its parent's,
// or fewer (a tail, which has no children), with a page of each group and maybe a state. The tree holds one reference
// to each page; a node that a running sequence builds upon is held and stays. What is not held goes when room is
// needed, the least recently used first.
//
// Three lists in order of last use keep eviction at O(1): nodes that nobody holds (each is one page of full layers to
// be had), sliding pages that nobody else holds, and states. A sequence lets go of its nodes from the end to the start,
// so a node stands in the first list behind all its descendants, and its head is always a leaf.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "base/hash.hpp"
#include "cache/page_pool.hpp"
#include "cache/slot_pool.hpp"

namespace adze::cache {

// Attention layers that read every position, and those that read the last `window`: each group has pages of its own.
enum class Group : std::uint8_t { full, sliding };
inline constexpr std::size_t kGroups = 2;
inline constexpr std::array<Group, kGroups> kEachGroup = {Group::full, Group::sliding};
constexpr std::size_t index_of(Group group) { return static_cast<std::size_t>(group); }

struct PrefixNode {
  explicit PrefixNode(SlotPool& slots) : state(slots) {}

  PrefixNode* parent = nullptr;       // null: a root, which stands for no token
  Digest key;                         // of the parent's key and the ids; a root's is its settings'
  std::vector<std::int32_t> ids;      // [1 .. page_tokens]
  std::vector<PrefixNode*> children;  // sorted by ids, which differ
  std::array<PageHandle, kGroups> pages;
  StateSlot state;      // after the last id
  bool proven = false;  // the state is an end's, or was used: checkpoints go before it
  int holders = 0;      // sequences

  struct Link {
    PrefixNode* before = nullptr;
    PrefixNode* after = nullptr;
    bool in = false;
  };
  Link unheld, sliding, stated;

  bool has(Group group) const { return pages[index_of(group)].index >= 0; }
  PageHandle page(Group group) const { return pages[index_of(group)]; }
};

// In order of last use, through the nodes themselves.
template <PrefixNode::Link PrefixNode::* kLink>
class NodeList {
 public:
  PrefixNode* front() const { return front_; }
  std::int64_t size() const { return size_; }
  // To the end: the most recently used. A node that is in the list is moved.
  void touch(PrefixNode& node) {
    remove(node);
    PrefixNode::Link& link = node.*kLink;
    link = {.before = back_, .after = nullptr, .in = true};
    (back_ != nullptr ? (back_->*kLink).after : front_) = &node;
    back_ = &node;
    ++size_;
  }
  void remove(PrefixNode& node) {
    PrefixNode::Link& link = node.*kLink;
    if (!link.in) return;
    (link.before != nullptr ? (link.before->*kLink).after : front_) = link.after;
    (link.after != nullptr ? (link.after->*kLink).before : back_) = link.before;
    link = {};
    --size_;
  }

 private:
  PrefixNode* front_ = nullptr;
  PrefixNode* back_ = nullptr;
  std::int64_t size_ = 0;
};

// Keys that left, as many as fit: a table in which a new key overwrites whichever stood at its place.
class EvictedKeys {
 public:
  void add(Digest key);
  void remove(Digest key);
  bool contains(Digest key) const;
  bool empty() const { return keys_.empty(); }
  void clear() { keys_.clear(); }

 private:
  std::vector<Digest> keys_;  // allocated by the first
};

// Where a text can go on. Its first tokens are those of `path` and, if it is not null, the first of `partial`.
struct PrefixMatch {
  std::int64_t tokens = 0;
  PrefixNode* partial = nullptr;
  std::int64_t known = 0;               // tokens that some known text begins with, whether work can go on there or not
  const PrefixNode* deepest = nullptr;  // the last whole page of those
};

class PrefixIndex {
 public:
  // `pools` has one for each group, of 0 pages where the model has none of it. They outlive the index.
  PrefixIndex(int page_tokens, std::int64_t window, std::span<PagePool, kGroups> pools, SlotPool& slots);
  ~PrefixIndex();

  // The root of this digest, held once more.
  PrefixNode& hold_root(Digest digest);
  void hold(PrefixNode& node);
  // One holder less, whose pages were released before; of a path the last node first.
  void let_go(PrefixNode& node);

  // The longest beginning of ids[0, limit) from which work can go on; `path` becomes the nodes of its whole pages.
  PrefixMatch find(PrefixNode& root, std::span<const std::int32_t> ids, std::int64_t limit,
                   std::vector<PrefixNode*>& path) const;
  PrefixNode* child(const PrefixNode& parent, std::span<const std::int32_t> ids) const;
  // A child of which `tail` is a beginning, and from whose part work can go on as well as from the tail.
  PrefixNode* covering(const PrefixNode& parent, std::span<const std::int32_t> tail) const;
  // Whether another root has texts that begin with these tokens. Looks at some of the roots only.
  bool other_root_knows(const PrefixNode& root, std::span<const std::int32_t> ids) const;
  // Whether a node behind `parent` that began these ids left.
  bool was_evicted(const PrefixNode& parent, std::span<const std::int32_t> ids);

  // False: no further node is taken, even if the least recently used go.
  bool make_room_for_node();
  // A new node without pages, held once. `parent` is held and has no such child.
  PrefixNode& add(PrefixNode& parent, std::span<const std::int32_t> ids);
  // The node shares the page from here on; what it had is released.
  void set_page(PrefixNode& node, Group group, PageHandle page);
  void set_state(PrefixNode& node, StateSlot state, bool proven);
  // The state was used: it is the last to go.
  void touch_state(PrefixNode& node);
  // The node, which is held, has none afterwards.
  StateSlot take_state(PrefixNode& node);
  // Removes tails that are beginnings of the node, which does all that they did.
  void drop_beginnings_of(PrefixNode& node);
  // To be called whenever a sequence shared or released the node's sliding page.
  void settle(PrefixNode& node);

  // What can be given up, and giving up one of it. For states: the first checkpoint, if there is none and `any` the
  // first other; but never that of `spare`.
  std::int64_t evictable(Group group) const;
  std::int32_t evictable_states() const;
  void evict(Group group);
  bool evict_state(bool any, const PrefixNode* spare);
  // Gives up the node's page in favour of the only sequence that holds it, which has let the node go if this returns
  // true.
  bool yield(PrefixNode& node, Group group);

  struct Counts {
    std::array<std::int64_t, kGroups> pages{};
    std::int64_t states = 0;
  };
  const Counts& given_up() const { return counts_; }

  // Forgets what nobody holds.
  void clear();
  std::size_t nodes() const { return nodes_.size() - spare_.size(); }

 private:
  bool useful(const PrefixNode& node) const;
  void prune(PrefixNode* node);
  PrefixNode* give_up(PrefixNode& node);
  PrefixNode* remove(PrefixNode& node);
  void drop_sliding(PrefixNode& node);
  void release_state(PrefixNode& node);
  std::int64_t first_read(std::int64_t position) const;
  bool can_end(const PrefixNode& node, std::int64_t common, std::int64_t end, std::int64_t unbroken) const;
  PrefixNode* longest_beginning(const PrefixNode& parent, std::span<const std::int32_t> ids) const;
  std::int64_t longest_common(const PrefixNode& parent, std::span<const std::int32_t> ids) const;
  PrefixMatch inside(const PrefixNode& parent, std::span<const std::int32_t> rest, std::int64_t start,
                     std::int64_t unbroken) const;
  Digest key_of(const PrefixNode& parent, std::span<const std::int32_t> ids);

  int page_tokens_;
  std::int64_t window_;
  std::span<PagePool, kGroups> pools_;
  SlotPool* slots_;
  std::map<Digest, PrefixNode*> roots_;
  std::deque<PrefixNode> nodes_;  // roots too
  std::vector<PrefixNode*> spare_;
  NodeList<&PrefixNode::unheld> unheld_;
  NodeList<&PrefixNode::sliding> sliding_;
  NodeList<&PrefixNode::stated> checkpoints_, ends_;
  EvictedKeys evicted_;
  Counts counts_;
  std::vector<std::byte> key_bytes_;
};

}  // namespace adze::cache
