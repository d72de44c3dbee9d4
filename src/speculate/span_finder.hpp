// Where the end of a text stood before: for drafts that copy a long span word for word. Chains of equal hashes of
// kGram tokens, as a Lempel-Ziv matcher has them; the text itself says how far two places agree.
//
// Memory: 4 bytes per token of text and 4 per chain, of which there are as many as tokens, up to kMostChains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace adze::speculate {

// An earlier place of the text's end: text[next] is the token behind it, and the `length` tokens before are the same.
struct Span {
  std::int64_t next = -1;  // -1: none
  int length = 0;
  int places = 0;  // of those that were compared, how many agree as far and have the same token behind
};

class SpanFinder {
 public:
  static constexpr int kGram = 3;
  static constexpr std::size_t kMostChains = 1u << 17;
  static constexpr int kLongestMatch = 64;  // tokens compared
  static constexpr int kMostPlaces = 16;    // compared, the latest first

  // Takes in text[known..). The text before must be the one of the last call.
  void eat(std::span<const std::int32_t> text);
  // The longest match of the end of the text that eat() saw last; the latest of equal ones.
  Span find(std::span<const std::int32_t> text) const;

  std::size_t memory_bytes() const { return (previous_.size() + heads_.size()) * sizeof(std::int32_t); }

 private:
  void link(std::span<const std::int32_t> text, std::size_t position);
  std::size_t chain_of(std::span<const std::int32_t> text, std::size_t position) const;

  // Positions are those behind a gram. previous_[p]: the last one before p in the same chain; -1: none.
  std::vector<std::int32_t> heads_;     // [chains], a power of two
  std::vector<std::int32_t> previous_;  // [text + 1]
};

}  // namespace adze::speculate
