// The regular expressions of pre-tokenizers, compiled to a small program over code points.
//
// The language is the part of Oniguruma's that tokenizer.json files use: alternation, groups ((?:...), (?i:...) for
// ASCII letters), literals and escapes, classes ([...] with ranges, negation, \s \d \w \p{..} and nested classes), the
// quantifiers ? * + {m,n} and their possessive forms, and lookahead for one class ((?=[..]) and (?!\S)). Anything else
// is refused by name. Alternatives are tried in order and loops give back one code point at a time, as in Perl.
//
// Why not PCRE2: its Unicode version is the system's (14.0 on Debian 12), so that newer letters would be cut otherwise
// than by the tokenizers that models were trained with (16.0), and its match limits fail on long runs. Loops over a
// class need no stack here, so a run of a million letters costs a million steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/unicode.hpp"

namespace adze::text {

// Some code points: any of the items, or none of them when negated.
struct CodePointClass {
  struct Item {
    enum class Kind : std::uint8_t { range, categories, white_space, word, nested } kind = Kind::range;
    bool negated = false;
    char32_t first = 0, last = 0;  // range
    CategoryMask categories = 0;   // categories
    std::uint32_t nested = 0;      // index of another class of the pattern
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items = {};
  bool negated = false;
  std::uint64_t ascii[2] = {0, 0};  // bit n: whether n is in the class; filled when the pattern is complete
};

class Pattern {
 public:
  // What one call of match may spend; shared by all calls of one encode, so that its time is bounded.
  struct Budget {
    std::uint64_t steps = 0;
  };
  // Scratch memory of match, reused between calls.
  struct Scratch {
    struct Choice {
      std::uint32_t instruction;  // to go on with
      std::size_t at;             // from here
      std::size_t least;          // a loop's end may move back to here, one code point at each failure
    };
    std::vector<Choice> choices;
  };

  // Errors: unsupported_feature (a construct outside the language), limit_exceeded (kPatternMaxInstructions).
  static Result<Pattern> compile(std::string_view source);

  // The end of the match that starts exactly at `at`; nothing when there is none. `text` is valid UTF-8. When the
  // budget runs out there is no match and budget.steps is 0.
  std::optional<std::size_t> match(std::string_view text, std::size_t at, Budget& budget, Scratch& scratch) const;

  const std::string& source() const { return source_; }

 private:
  friend class PatternCompiler;
  enum class Op : std::uint8_t {
    one,         // a code point of class `a`
    loop,        // min..max code points of class `a`, as many as there are, giving back
    possessive,  // ... without giving back
    split,       // try instruction `a`, then `b`
    jump,        // to `a`
    ahead,       // a code point of class `a` follows (not consumed)
    not_ahead,   // none follows, or the text ends
    accept,
  };
  struct Instruction {
    Op op = Op::accept;
    std::uint32_t a = 0, b = 0;
    std::uint32_t min = 0, max = 0;  // loops; max kUnbounded
    // split: the ASCII characters (and whether any other) that alternative `a` can start with, where that is known
    bool has_first = false, first_other = false;
    std::uint64_t first[2] = {0, 0};
  };
  static constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;

  bool contains(const CodePointClass& cls, char32_t c) const;
  bool contains_slow(const CodePointClass& cls, char32_t c) const;
  // The end of the longest run of at most `max` code points of the class from `at`; count is how many they were.
  std::size_t run(const CodePointClass& cls, std::string_view text, std::size_t at, std::uint32_t max,
                  std::uint32_t& count) const;

  std::string source_;
  std::vector<Instruction> program_;
  std::vector<CodePointClass> classes_;
};

}  // namespace adze::text
