#pragma once

#include <string_view>

namespace adze::cli {

std::string_view version();  // "0.1.0"

}  // namespace adze::cli
