// The memory of texts: which pages of KV and which slot of recurrent state each running text has, and what stays of
// those that ended (the prefix index, prefix_index.hpp). It moves no bytes itself: a Device copies pages and states.
// docs/design/0018. Not thread-safe: the engine's thread owns it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "cache/page_list.hpp"
#include "cache/page_pool.hpp"
#include "cache/prefix_index.hpp"
#include "cache/slot_pool.hpp"

namespace adze::cache {

// What the cache asks of whoever holds the bytes. Both are done when they return, before the next batch runs.
class Device {
 public:
  virtual ~Device() = default;
  virtual void copy_page(Group group, std::int32_t from, std::int32_t to) = 0;
  virtual void copy_state(std::int32_t from, std::int32_t to) = 0;
};

struct CacheOptions {
  int page_tokens = 64;
  std::int32_t full_pages = 0, sliding_pages = 0, slots = 0;  // 0: the model has none of it
  std::int64_t window = 0;                                    // of the sliding group: a row at p reads (p - window, p]
  // While a prompt is computed a copy of the state is kept whenever so many more positions are; a multiple of
  // page_tokens. A slot of a small Qwen 3.5 is worth the KV of 1,600 tokens.
  std::int64_t checkpoint_tokens = 1024;
};

// Why a lookup did not reuse more than it did.
enum class MissReason : std::uint8_t {
  none,            // all that may be reused was
  new_prefix,      // the next tokens were never here, or long ago
  evicted,         // they were, and went when room was needed
  other_settings,  // they are here, under another root
  no_state,        // their pages are here, but no recurrent state to go on from
};
inline constexpr std::size_t kMissReasons = 5;
std::string_view miss_reason_name(MissReason reason);  // snake_case

struct Reuse {
  std::int64_t tokens = 0;
  MissReason why_not_more = MissReason::none;
};

// Counted since the cache was made.
struct CacheStatistics {
  std::int64_t lookups = 0, hits = 0;                // a hit reuses at least one token
  std::int64_t asked_tokens = 0, reused_tokens = 0;  // asked: those that a lookup could have reused
  std::array<std::int64_t, kMissReasons> reasons{};  // of lookups, by MissReason
  std::array<std::int64_t, kGroups> evicted_pages{}, copied_pages{};
  std::int64_t evicted_states = 0;
  std::int64_t kept_states = 0;   // copies and slots that the index got
  std::int64_t shared_pages = 0;  // complete pages that the index had already when they were published
};

class KvCache;

// The memory of one text. Positions [0, length()) are computed and belong to the text; behind them is room that the
// next rows write. Movable; gives everything back when destroyed.
class KvSequence {
 public:
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;
  ~KvSequence();

  std::int64_t length() const { return length_; }
  // Page indices for the backend: entry i holds positions [i * page_tokens, (i + 1) * page_tokens), -1 where released.
  // Valid until the next call that is not const.
  std::span<const std::int32_t> full() const { return pages(Group::full); }
  std::span<const std::int32_t> sliding() const { return pages(Group::sliding); }
  std::span<const std::int32_t> pages(Group group) const { return lists_[index_of(group)].indices(); }
  std::int32_t slot() const { return state_.index(); }  // -1: none

  // How many pages of what is obtainable reserve(length) needs.
  std::int64_t needs(Group group, std::int64_t length) const;
  // Room for positions below `length`: pages, each that is going to be written held by this sequence alone (copied
  // through the Device if it was shared), and a slot if the model has states. Evicts from the index as needed. Errors:
  // out_of_memory, with need and have; then nothing has changed.
  Status reserve(std::int64_t length);
  // `positions` more of the room are computed and belong to the text. Of these the last `pending` are not in the slot's
  // state yet: they are rows of its log, which the next batch replays first. Pages that left the window stay, so that
  // publish() can keep them; call that or release_left() before anybody counts what can be had.
  void commit(std::int64_t positions, std::int64_t pending = 0);
  // Releases the room behind length() (after a rejected draft).
  void shrink();
  // Releases the pages of which the window has left every position. So does the next publish() or reserve().
  void release_left();

  // Only while nothing is held: takes over the longest computed beginning of `ids`, of fewer than `below` tokens.
  Reuse attach(std::span<const std::int32_t> ids, std::int64_t below);
  // Where the chunk of a prompt that begins at length() should end at the latest, so that a copy of the state can be
  // kept there; `prompt_length` when nowhere before.
  std::int64_t next_stop(std::int64_t prompt_length) const;
  // Makes known what is computed. `ids`: the whole text, length() tokens at least. Complete pages are shared with the
  // index from here on, and a copy of the state is kept where one is due. Call it after every commit: it does nothing
  // unless a page's edge was crossed.
  void publish(std::span<const std::int32_t> ids);
  enum class State : std::uint8_t {
    copy,      // the sequence goes on
    hand_over  // the index gets the slot, and the sequence is cleared
  };
  // The same, and the part of a page at the end: at length(), or where the state stands when rows are pending.
  void publish_tail(std::span<const std::int32_t> ids, State how);

  // A sequence that shares all that is computed, a part of the last page included, with a slot of its own and a copy of
  // the state. No rows may be pending. Errors: out_of_memory (no slot).
  Result<KvSequence> fork() const;
  // Gives everything back; length() is 0.
  void clear();

 private:
  friend class KvCache;
  KvSequence(KvCache& cache, PrefixNode& root);

  void close();
  std::int64_t pages_for(std::int64_t positions) const;
  std::int64_t room() const;
  // Who else holds page `i` of the group: sequences, without the index's own share.
  int other_sequences(Group group, std::size_t i) const;
  PrefixNode* node_of(std::size_t i) const;
  PrefixNode* parent_of(std::size_t page) const { return page == 0 ? root_ : path_[page - 1]; }
  void drop_page(Group group, std::size_t i);
  void own_written_page();
  bool own_for_index(std::size_t i);
  void take_state_from(PrefixNode& node);
  bool publish_page(std::span<const std::int32_t> ids);
  void adopt(PrefixNode& node, std::size_t i);
  void keep_checkpoint();
  void put_tail(std::span<const std::int32_t> ids, State how);
  void put_state_tail(PrefixNode& parent, std::span<const std::int32_t> tail, std::size_t page, State how);
  PrefixNode* new_tail(PrefixNode& parent, std::span<const std::int32_t> tail, std::size_t page);
  PrefixNode* copied_tail(PrefixNode& parent, std::span<const std::int32_t> tail, std::size_t page);
  bool slot_for_index(StateSlot& slot, State how);

  KvCache* cache_;
  PrefixNode* root_;               // held
  std::vector<PrefixNode*> path_;  // nodes of the first pages, held; their pages are the lists' first
  PrefixNode* partial_ = nullptr;  // the node, held, whose page is shared as page path_.size() until it is written
  std::array<PageList, kGroups> lists_;
  StateSlot state_;
  std::int64_t pages_ = 0;  // entries of each list, of a group that the model has
  std::int64_t length_ = 0;
  std::int64_t pending_ = 0;  // of length_: not in the state yet
  std::int64_t left_ = 0;     // first entries of the sliding list that were released
  std::int64_t tried_ = 0;    // complete pages when they were last published
  std::int64_t branch_ = 0;   // a page's edge to which known texts agree with this one, and none kept a state there
};

class KvCache {
 public:
  // The device outlives the cache.
  KvCache(const CacheOptions& options, Device& device);
  // Sequences never outlive it (checked).
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // An empty sequence. `root`: the digest of everything that decides a bit of KV (docs/design/0018); only texts of one
  // root share pages.
  KvSequence open(Digest root);

  const CacheOptions& options() const { return options_; }
  // What sequences can get: free, or held by the index alone. Exact.
  std::int64_t obtainable(Group group) const;
  std::int32_t obtainable_slots() const;
  // What sequences hold; an idle engine's are 0.
  std::int64_t in_use(Group group) const { return pool(group).capacity() - obtainable(group); }
  std::int32_t slots_in_use() const { return slots_.capacity() - obtainable_slots(); }
  std::int64_t capacity(Group group) const { return pool(group).capacity(); }
  std::int64_t free_pages(Group group) const { return pool(group).available(); }
  std::int32_t free_slots() const { return slots_.available(); }
  std::size_t nodes() const { return index_.nodes(); }

  CacheStatistics statistics() const;
  // Forgets what no running sequence shares.
  void clear();

 private:
  friend class KvSequence;
  const PagePool& pool(Group group) const { return pools_[index_of(group)]; }
  PagePool& pool(Group group) { return pools_[index_of(group)]; }
  bool has(Group group) const { return pool(group).capacity() > 0; }
  // A free page, for which the index gives up one of its own if it must. At least one is obtainable.
  PageHandle take(Group group);
  // A free slot likewise; of the index's states only checkpoints are given up unless `any`. `spare` stays in any case.
  bool take_slot(StateSlot& slot, bool any, const PrefixNode* spare = nullptr);
  void copy_page(Group group, PageHandle from, PageHandle to);
  MissReason why_not_more(const PrefixNode& root, std::span<const std::int32_t> ids, std::int64_t limit,
                          const PrefixMatch& match);

  CacheOptions options_;
  Device* device_;
  std::array<PagePool, kGroups> pools_;
  SlotPool slots_;
  PrefixIndex index_;
  std::int64_t open_ = 0;  // sequences
  CacheStatistics statistics_;
};

}  // namespace adze::cache
