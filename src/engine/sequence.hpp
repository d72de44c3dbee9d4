// One text in the model's memory: its tokens, and the pages and the slot that hold what is computed of it.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_cache.hpp"

namespace adze::engine {

// Positions [0, kv.length()) are computed, [kv.length(), ids.size()) wait for the next steps. A sampled token is
// appended to `ids` first and computed when its successor is wanted.
struct Sequence {
  std::vector<std::int32_t> ids;
  cache::KvSequence kv;
  std::int32_t replay = 0;  // last computed positions that are in the log of the slot, not yet in its state

  std::int64_t length() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t waiting() const { return length() - kv.length(); }
};

}  // namespace adze::engine
