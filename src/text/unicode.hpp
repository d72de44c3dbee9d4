// Unicode 16.0 as the tokenizers need it: UTF-8, general categories, white space, normal form C. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace adze::text {

enum class Category : std::uint8_t {  // the order of tools/make_unicode_tables.py
  Cn,
  Cc,
  Cf,
  Co,
  Cs,
  Ll,
  Lm,
  Lo,
  Lt,
  Lu,
  Mc,
  Me,
  Mn,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Pe,
  Pf,
  Pi,
  Po,
  Ps,
  Sc,
  Sk,
  Sm,
  So,
  Zl,
  Zp,
  Zs
};
// A set of categories: bit n for Category n.
using CategoryMask = std::uint32_t;
constexpr CategoryMask mask_of(Category c) { return CategoryMask{1} << static_cast<unsigned>(c); }

Category category(char32_t code_point);  // Cn beyond U+10FFFF
inline bool has_category(char32_t code_point, CategoryMask mask) { return (mask_of(category(code_point)) & mask) != 0; }
bool is_white_space(char32_t code_point);  // the property White_Space: what \s means
bool is_word(char32_t code_point);         // letters, marks, decimal digits, connectors: what \w means

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

void append_utf8(char32_t code_point, std::string& out);

struct CodePoint {
  char32_t value = 0;
  std::uint32_t bytes = 0;
};
// The code point that starts at `text[at]`. The text must be valid UTF-8 and at < text.size().
CodePoint code_point_at(std::string_view text, std::size_t at);

// What the first bytes of `text` (not empty) are.
enum class Utf8Kind : std::uint8_t {
  character,   // `bytes` bytes of one character
  invalid,     // `bytes` bytes that are the maximal invalid part: one U+FFFD
  incomplete,  // all `bytes` bytes of the text, a proper prefix of a character
};
struct Utf8Part {
  Utf8Kind kind;
  std::uint32_t bytes;
};
Utf8Part first_utf8_part(std::string_view text);

bool is_valid_utf8(std::string_view text);
// Appends `text` with each maximal invalid part as U+FFFD.
void append_valid_utf8(std::string_view text, std::string& out);

// Normal form C of valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace adze::text
