// How much to believe a drafted token by what speaks for it. Evidence comes in kinds (a context of how many tokens that
// was continued so how often, a copy that has agreed for how long), and how often each kind was right is counted per
// request: the same pair of tokens means much in a table of numbers and nothing in a novel.
#pragma once

#include <array>
#include <cstdint>

namespace adze::speculate {

// An index into Evidence; the weakest of its sort first.
enum class Kind : std::uint8_t {
  two_once,
  two_twice,
  two_often,  // contexts of two tokens
  three_once,
  three_twice,
  three_often,
  four_once,
  four_twice,
  four_often,
  resumed,  // a copy, behind the model's own word
  copy_short,
  copy_middle,
  copy_long,
};
inline constexpr std::size_t kKinds = 13;

// context: 2..4 tokens; count: times that the continuation was seen.
constexpr Kind kind_of_context(int context, int count) {
  return static_cast<Kind>(3 * (context - 2) + (count >= 3 ? 2 : count - 1));
}
// length: tokens that agree, those of the draft so far included.
constexpr Kind kind_of_copy(int length) {
  return length >= 16 ? Kind::copy_long : length >= 8 ? Kind::copy_middle : Kind::copy_short;
}

class Evidence {
 public:
  Evidence();
  // The share of its tokens that were accepted lately.
  double trust(Kind kind) const;
  // A draft was made, or could have been and was not since the kind is not trusted.
  void used(Kind kind, bool accepted);
  void passed_over(Kind kind);
  // One that was passed over often is heard again.
  bool due(Kind kind) const;

 private:
  struct Score {
    float hits = 0, tries = 0;
    std::uint8_t passed_over = 0;
  };
  std::array<Score, kKinds> scores_;
};

}  // namespace adze::speculate
