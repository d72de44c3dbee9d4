// Which tokens may be drawn at a position, as a grammar's matcher says it: one bit per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace adze::sample {

inline constexpr std::size_t kMaskBits = 32;  // of a word

// Words that a vocabulary takes.
constexpr std::size_t mask_words(int vocabulary) {
  return (static_cast<std::size_t>(vocabulary) + kMaskBits - 1) / kMaskBits;
}

// Bit i % 32 of word i / 32 is set where token i is allowed; bits behind the vocabulary are not looked at. No words:
// everything is allowed. A view: whoever makes it keeps the words.
struct TokenMask {
  std::span<const std::uint32_t> words;
  bool empty() const { return words.empty(); }
};

}  // namespace adze::sample
