#include "text/jinja/unicode.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

namespace adze::text::jinja {
namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};
// Code points first, first + step ... last map to themselves plus delta.
struct CaseRange {
  char32_t first;
  char32_t last;
  std::uint32_t step;
  std::int32_t delta;
};
struct CaseSpecial {
  char32_t code;
  char32_t image[3];
};

#include "text/jinja/unicode_tables.inc"

bool within(std::span<const CodeRange> ranges, char32_t code) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code, [](char32_t c, const CodeRange& r) { return c < r.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

Mapping map_case(std::span<const CaseRange> ranges, std::span<const CaseSpecial> specials, char32_t code) {
  const auto special = std::lower_bound(specials.begin(), specials.end(), code,
                                        [](const CaseSpecial& s, char32_t c) { return s.code < c; });
  if (special != specials.end() && special->code == code && special->image[0] != 0)
    return {{special->image[0], special->image[1], special->image[2], 0}};
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code, [](char32_t c, const CaseRange& r) { return c < r.first; });
  if (after != ranges.begin()) {
    const CaseRange& range = *std::prev(after);
    if (code <= range.last && (code - range.first) % range.step == 0)
      return {{static_cast<char32_t>(static_cast<std::int64_t>(code) + range.delta), 0, 0, 0}};
  }
  return {{code, 0, 0, 0}};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  std::size_t i = 0;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  while (i < text.size()) {
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || i + length > text.size()) return false;
    const unsigned char second = byte(i + 1);
    const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (second < low || second > high) return false;
    for (std::size_t k = 2; k < length; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    i += length;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  unsigned char seen = 0;
  for (const char c : text) seen = static_cast<unsigned char>(seen | static_cast<unsigned char>(c));
  return seen < 0x80;
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

char32_t decode_at(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) -> char32_t { return static_cast<unsigned char>(text[i]); };
  const char32_t lead = byte(at);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  char32_t code = length == 4 ? lead & 7 : length == 3 ? lead & 15 : lead & 31;
  for (std::size_t k = 1; k < length; ++k) code = (code << 6) | (byte(at + k) & 63);
  at += length;
  return code;
}

std::size_t previous_code_point(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
    --index;
  }
  return at;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 63));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 63));
    put(0x80 | (code & 63));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 63));
    put(0x80 | ((code >> 6) & 63));
    put(0x80 | (code & 63));
  }
}

std::string to_utf8(char32_t code) {
  std::string out;
  append_utf8(out, code);
  return out;
}

bool is_alpha(char32_t code) { return within(kAlpha, code); }
bool is_decimal(char32_t code) { return within(kDecimal, code); }
bool is_digit(char32_t code) { return within(kDigit, code); }
bool is_numeric(char32_t code) { return within(kNumeric, code); }
bool is_lower(char32_t code) { return within(kLower, code); }
bool is_upper(char32_t code) { return within(kUpper, code); }
bool is_title(char32_t code) { return within(kTitle, code); }
bool is_space(char32_t code) { return within(kSpace, code); }
bool is_printable(char32_t code) { return !within(kUnprintable, code); }
bool is_cased(char32_t code) { return within(kCased, code); }
bool is_case_ignorable(char32_t code) { return within(kCaseIgnorable, code); }

bool is_name_start(char32_t code) { return code == '_' || within(kNameStart, code); }
bool is_name_rest(char32_t code) { return within(kNameRest, code); }

bool is_line_break(char32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

int decimal_value(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9' ? static_cast<int>(code - '0') : -1;
  const auto after = std::upper_bound(std::begin(kDecimalZero), std::end(kDecimalZero), code);
  if (after == std::begin(kDecimalZero) || code - *std::prev(after) > 9) return -1;
  return static_cast<int>(code - *std::prev(after));
}

Mapping to_upper(char32_t code) { return map_case(kToUpper, kToUpperSpecial, code); }
Mapping to_lower(char32_t code) { return map_case(kToLower, kToLowerSpecial, code); }
Mapping to_title(char32_t code) { return map_case(kToTitle, kToTitleSpecial, code); }
Mapping to_folded(char32_t code) { return map_case(kToFold, kToFoldSpecial, code); }

}  // namespace adze::text::jinja
