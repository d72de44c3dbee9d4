// Whether bytes are UTF-8: what the terminal, a pipe and JSON need to know, and nothing more.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace adze::cli {

// Bytes of the well-formed character at the start of `text` (no overlong forms, no surrogates); 0 where there is none.
std::size_t utf8_length(std::string_view text);

// The offset of the first byte that does not belong to a well-formed character.
std::optional<std::size_t> first_bad_utf8(std::string_view text);

}  // namespace adze::cli
