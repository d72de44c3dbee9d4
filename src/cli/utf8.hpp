#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace adze::cli {

// The offset of the first byte that does not belong to a well-formed UTF-8 character, for messages.
std::optional<std::size_t> first_bad_utf8(std::string_view text);

}  // namespace adze::cli
