#include "text/unicode.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/check.hpp"
#include "text/unicode_tables.hpp"

namespace adze::text {

namespace {

// Hangul syllables are composed by arithmetic (Unicode standard, section 3.12).
constexpr char32_t kHangulSyllables = 0xAC00, kHangulLeading = 0x1100, kHangulVowels = 0x1161, kHangulTrailing = 0x11A7;
constexpr char32_t kVowelCount = 21, kTrailingCount = 28, kSyllableCount = 11172, kLeadingCount = 19;

std::uint8_t combining_class(char32_t code_point) {
  const auto* end = tables::kCombining + tables::kCombiningCount;
  const auto* range = std::lower_bound(tables::kCombining, end, code_point,
                                       [](const tables::CombiningRange& r, char32_t c) { return r.last < c; });
  return range != end && range->first <= code_point ? range->value : 0;
}

void decompose(char32_t code_point, std::u32string& out) {
  if (code_point >= kHangulSyllables && code_point < kHangulSyllables + kSyllableCount) {
    const char32_t syllable = code_point - kHangulSyllables;
    out += static_cast<char32_t>(kHangulLeading + syllable / (kVowelCount * kTrailingCount));
    out += kHangulVowels + syllable / kTrailingCount % kVowelCount;
    if (syllable % kTrailingCount != 0) out += kHangulTrailing + syllable % kTrailingCount;
    return;
  }
  const auto* end = tables::kDecompositions + tables::kDecompositionCount;
  const auto* found = std::lower_bound(tables::kDecompositions, end, code_point,
                                       [](const tables::Decomposition& d, char32_t c) { return d.code_point < c; });
  if (found == end || found->code_point != code_point) {
    out += code_point;
    return;
  }
  decompose(found->first, out);
  if (found->second != 0) decompose(found->second, out);
}

struct Composition {
  std::uint64_t pair;
  char32_t composed;
};

const std::vector<Composition>& compositions() {
  static const std::vector<Composition> table = [] {
    std::vector<Composition> rows;
    for (std::size_t i = 0; i < tables::kDecompositionCount; ++i) {
      const auto& d = tables::kDecompositions[i];
      if (d.composes) rows.push_back({std::uint64_t{d.first} << 32 | d.second, d.code_point});
    }
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.pair < b.pair; });
    return rows;
  }();
  return table;
}

// 0 when the two do not compose.
char32_t compose(char32_t first, char32_t second) {
  if (first - kHangulLeading < kLeadingCount && second - kHangulVowels < kVowelCount) {
    return kHangulSyllables + ((first - kHangulLeading) * kVowelCount + (second - kHangulVowels)) * kTrailingCount;
  }
  const char32_t syllable = first - kHangulSyllables;
  if (syllable < kSyllableCount && syllable % kTrailingCount == 0 && second > kHangulTrailing &&
      second < kHangulTrailing + kTrailingCount) {
    return first + (second - kHangulTrailing);
  }
  const std::uint64_t pair = std::uint64_t{first} << 32 | second;
  const auto& rows = compositions();
  const auto found = std::lower_bound(rows.begin(), rows.end(), pair,
                                      [](const Composition& c, std::uint64_t p) { return c.pair < p; });
  return found != rows.end() && found->pair == pair ? found->composed : 0;
}

// Marks of each run in order of their class; equal classes keep their order.
void order_marks(std::u32string& text) {
  for (std::size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(i), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

// Composes in place what order_marks left.
void compose_all(std::u32string& text) {
  std::size_t out = 0;
  std::size_t starter = std::u32string::npos;
  std::uint8_t last_class = 0;
  for (const char32_t c : text) {
    const std::uint8_t cls = combining_class(c);
    const bool adjacent = starter != std::u32string::npos && out == starter + 1;
    if (starter != std::u32string::npos && (adjacent || (last_class < cls && cls != 0))) {
      if (const char32_t composed = compose(text[starter], c); composed != 0) {
        text[starter] = composed;
        continue;
      }
    }
    if (cls == 0) starter = out;
    last_class = cls;
    text[out++] = c;
  }
  text.resize(out);
}

}  // namespace

Category category(char32_t code_point) {
  if (code_point > 0x10FFFF) return Category::Cn;
  const std::size_t block = tables::kCategoryIndex[code_point >> 7];
  return static_cast<Category>(tables::kCategoryBlocks[block * 128 + (code_point & 127)]);
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  using enum Category;
  constexpr CategoryMask kWord = mask_of(Ll) | mask_of(Lm) | mask_of(Lo) | mask_of(Lt) | mask_of(Lu) | mask_of(Mc) |
                                 mask_of(Me) | mask_of(Mn) | mask_of(Nd) | mask_of(Pc);
  return has_category(c, kWord);
}

void append_utf8(char32_t c, std::string& out) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  if (c < 0x80) {
    out += byte(c);
  } else if (c < 0x800) {
    out += {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    out += {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  } else {
    out += {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  }
}

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu), 4};
}

Utf8Part first_utf8_part(std::string_view text) {
  ADZE_CHECK(!text.empty());
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8Kind::character, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::invalid, 1};
  const std::uint32_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte has a narrower range after four of the lead bytes: no overlong forms, surrogates or beyond
  // U+10FFFF.
  unsigned low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::uint32_t i = 1; i < bytes; ++i) {
    if (i == text.size()) return {Utf8Kind::incomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Kind::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Kind::character, bytes};
}

namespace {

// How many of the first bytes are ASCII, eight at a time.
std::size_t ascii_prefix(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (text.remove_prefix(ascii_prefix(text)); !text.empty(); text.remove_prefix(ascii_prefix(text))) {
    const Utf8Part part = first_utf8_part(text);
    if (part.kind != Utf8Kind::character) return false;
    text.remove_prefix(part.bytes);
  }
  return true;
}

void append_valid_utf8(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const std::size_t ascii = ascii_prefix(text);
    out += text.substr(0, ascii);
    text.remove_prefix(ascii);
    if (text.empty()) return;
    const Utf8Part part = first_utf8_part(text);
    out += part.kind == Utf8Kind::character ? text.substr(0, part.bytes) : kReplacementUtf8;
    text.remove_prefix(part.bytes);
  }
}

std::string to_nfc(std::string_view text) {
  if (ascii_prefix(text) == text.size()) return std::string(text);
  std::u32string code_points;
  code_points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    decompose(c.value, code_points);
    at += c.bytes;
  }
  order_marks(code_points);
  compose_all(code_points);
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : code_points) append_utf8(c, out);
  return out;
}

}  // namespace adze::text
