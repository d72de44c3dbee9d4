// The generated tables behind unicode.hpp; nothing else includes this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adze::text::tables {

struct CombiningRange {  // canonical combining class of [first, last]
  std::uint32_t first, last;
  std::uint8_t value;
};
struct Decomposition {  // one canonical step; second is 0 for a singleton
  std::uint32_t code_point, first, second;
  bool composes;  // the pair comes back under NFC
};

// kCategoryBlocks[kCategoryIndex[cp >> 7] * 128 + (cp & 127)] is the Category of cp.
extern const std::uint8_t kCategoryBlocks[];
extern const std::uint16_t kCategoryIndex[];
extern const CombiningRange kCombining[];  // sorted
extern const std::size_t kCombiningCount;
extern const Decomposition kDecompositions[];  // sorted by code point; Hangul is computed
extern const std::size_t kDecompositionCount;

}  // namespace adze::text::tables
