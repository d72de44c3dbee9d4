// Code points as Python's str sees them: decoding, classes, case. Thread-safe, no state, no locale.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adze::text::jinja {

// Whether all bytes are well-formed UTF-8 (no surrogates, no overlong forms).
bool is_valid_utf8(std::string_view text);

bool is_ascii(std::string_view text);

// Number of code points of valid UTF-8.
std::size_t count_code_points(std::string_view text);

// The code point that starts at `at`, which is moved behind it. The text must be valid UTF-8 and `at` inside it.
char32_t decode_at(std::string_view text, std::size_t& at);

// The byte where the code point before `at` starts. `at` must be above 0.
std::size_t previous_code_point(std::string_view text, std::size_t at);

// Byte offset of code point number `index`; the text's size when there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index);

void append_utf8(std::string& out, char32_t code);
std::string to_utf8(char32_t code);

bool is_alpha(char32_t code);
bool is_decimal(char32_t code);
bool is_digit(char32_t code);
bool is_numeric(char32_t code);
bool is_lower(char32_t code);
bool is_upper(char32_t code);
bool is_title(char32_t code);
bool is_space(char32_t code);
bool is_printable(char32_t code);
bool is_cased(char32_t code);
bool is_case_ignorable(char32_t code);
bool is_name_start(char32_t code);  // of an identifier, `_` included
bool is_name_rest(char32_t code);
bool is_line_break(char32_t code);  // what str.splitlines splits at

// The value of a decimal digit of any script, or -1.
int decimal_value(char32_t code);

// Full case mappings: up to three code points, zero-terminated.
struct Mapping {
  char32_t codes[4] = {0, 0, 0, 0};
};
Mapping to_upper(char32_t code);
Mapping to_lower(char32_t code);
Mapping to_title(char32_t code);
Mapping to_folded(char32_t code);

}  // namespace adze::text::jinja
