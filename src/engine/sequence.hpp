// One text in the model's memory: its tokens, the pages that hold their K and V, and the slot of its recurrent state.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/page_table.hpp"
#include "cache/slot_pool.hpp"

namespace adze::engine {

// Positions [0, kv.length()) are computed, [kv.length(), ids.size()) wait for the next steps. A sampled token is
// appended to `ids` first and computed when its successor is wanted. For a model with recurrent layers a slot is held
// while anything is computed.
struct Sequence {
  std::vector<std::int32_t> ids;
  cache::PageTable kv;
  cache::StateSlot state;

  std::int64_t length() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t waiting() const { return length() - kv.length(); }

  // Becomes `target`: keeps the computed positions that both texts begin with, but never the last one of `target`,
  // whose logits the next step is after. A recurrent state cannot go back: there, all that was computed is kept, or
  // nothing. Returns how many were kept.
  std::int64_t retarget(std::vector<std::int32_t> target);
  // Nothing is computed any more; pages and slot are given back.
  void forget();
};

}  // namespace adze::engine
