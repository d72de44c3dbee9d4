// Two open-addressing tables that a tokenizer is made of: token text -> id and (left, right) -> merge. They hold ids
// only, never text, so that the vocabulary stays where it is (in a mapped file) and a table of 49,152 tokens costs 256
// KiB.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

// Multiply and fold, eight bytes at a time.
inline std::uint64_t hash_mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  constexpr std::uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xD6E8FEB86659FD93u;
  std::uint64_t hash = seed ^ (text.size() * kA);
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = hash_mix(hash ^ word, kB);
  }
  std::uint64_t tail = 0;
  for (std::size_t i = 0; i < left; ++i) tail |= std::uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
  return hash_mix(hash ^ tail, kA);
}

// Token text -> id; of tokens with the same text the first wins. Immutable after build.
class TokenIndex {
 public:
  // `tokens` must outlive the index. Errors: limit_exceeded when the texts were made to collide.
  Status build(std::span<const std::string_view> tokens);
  std::optional<TokenId> find(std::string_view text) const { return find_hashed(text, hash(text)); }
  // The same in two steps, for callers that look up many texts and hide the memory's latency between them.
  std::uint64_t hash(std::string_view text) const { return hash_text(text, seed_); }
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }
  std::optional<TokenId> find_hashed(std::string_view text, std::uint64_t hash) const;

 private:
  std::span<const std::string_view> tokens_;
  std::vector<TokenId> slots_;  // -1: empty; size a power of two
  std::uint64_t seed_ = 0;
};

struct Merge {
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
  std::uint32_t rank = kNoRank;  // lower goes first
  TokenId result = -1;

  explicit operator bool() const { return rank != kNoRank; }
};

// (left, right) -> merge; of equal pairs the first wins. Immutable after build. An entry is one word, 22 bits for each
// id and 20 for the rank, so that the 48,900 merges of a vocabulary of 49,152 cost 708 KiB.
class MergeTable {
 public:
  // Parses "left right" lines against the index. Errors: corrupt_file (a line without a space, or a part or a result
  // that is not a token; names the merge), limit_exceeded.
  Status build(std::span<const std::string_view> merges, std::span<const std::string_view> tokens,
               const TokenIndex& index);

  // False when the two do not merge.
  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = start(key); entries_[slot] != kEmpty; slot = (slot + 1) & mask_) {
      if (entries_[slot] >> kRankBits != key) continue;
      const auto rank = static_cast<std::uint32_t>(entries_[slot] & ((1u << kRankBits) - 1));
      return {rank, results_[rank]};
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // no pair: there are fewer ids than 2^22
  static constexpr int kIdBits = 22, kRankBits = 20;
  static std::uint64_t key_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << kIdBits | static_cast<std::uint32_t>(right);
  }
  std::size_t start(std::uint64_t key) const {
    return static_cast<std::size_t>(hash_mix(key ^ seed_, 0x9E3779B97F4A7C15u)) & mask_;
  }
  // One line of the merges, on its way to the table.
  struct Line {
    std::string_view left, right;
    std::uint64_t left_hash, right_hash;
    std::uint64_t key;
    TokenId result;
  };
  Status read_block(std::span<const std::string_view> merges, std::size_t first, std::size_t count,
                    std::span<const std::string_view> tokens, const TokenIndex& index, TokenId& guess,
                    Line* block) const;
  // False when the probe limit was hit.
  bool insert(std::uint64_t key, std::size_t rank);

  std::vector<std::uint64_t> entries_ = {kEmpty};  // key and rank; size a power of two, never full
  std::vector<TokenId> results_;                   // by rank
  std::size_t mask_ = 0;
  std::uint64_t seed_ = 0;
};

// Texts in order, for matching all that start at one place: each byte of the text narrows the range of candidates by
// binary search, so a place costs (length of the longest match) x log(texts), whatever the texts are.
class PrefixSet {
 public:
  struct Entry {
    std::string_view text;
    TokenId id;
  };
  void build(std::vector<Entry> entries);
  bool empty() const { return entries_.empty(); }
  // Calls visit(id, length) for every entry that `text` starts with, shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    if (text.empty() || !can_start(static_cast<unsigned char>(text[0]))) return;
    std::size_t low = first_[static_cast<unsigned char>(text[0])];
    std::size_t high = first_[static_cast<unsigned char>(text[0]) + 1];
    for (std::size_t depth = 1; low < high; ++depth) {
      for (; low < high && entries_[low].text.size() == depth; ++low) visit(entries_[low].id, depth);
      if (depth == text.size() || low == high) return;
      narrow(static_cast<unsigned char>(text[depth]), depth, low, high);
    }
  }
  bool can_start(unsigned char byte) const { return first_[byte] != first_[byte + 1u]; }

 private:
  void narrow(unsigned char byte, std::size_t depth, std::size_t& low, std::size_t& high) const;
  std::vector<Entry> entries_;  // sorted by text, bytes unsigned
  std::uint32_t first_[257] = {};
};

}  // namespace adze::text
