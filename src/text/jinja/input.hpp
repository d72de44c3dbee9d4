// JSON into template values, straight from the parser's events.
#pragma once

#include <functional>
#include <string_view>

#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {

// Reads one JSON object; key order is kept, of repeated keys the last value counts. `origin_of(name)` says where the
// strings of a top-level member come from. Returns a dict. Raises Failure (invalid_argument or a limit).
Value read_json_object(Runtime& rt, std::string_view json, const std::function<Origin(std::string_view)>& origin_of);

}  // namespace adze::text::jinja
