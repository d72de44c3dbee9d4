#include "cli/utf8.hpp"

#include "text/unicode.hpp"

namespace adze::cli {

std::optional<std::size_t> first_bad_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const text::Utf8Part part = text::first_utf8_part(text.substr(i));
    if (part.kind != text::Utf8Kind::character) return i;
    i += part.bytes;
  }
  return std::nullopt;
}

}  // namespace adze::cli
