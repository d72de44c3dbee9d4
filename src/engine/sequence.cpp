#include "engine/sequence.hpp"

#include <algorithm>
#include <utility>

namespace adze::engine {

std::int64_t Sequence::retarget(std::vector<std::int32_t> target) {
  const auto known = ids.begin() + static_cast<std::ptrdiff_t>(kv.length());
  const auto common = std::mismatch(ids.begin(), known, target.begin(), target.end()).first - ids.begin();
  std::int64_t keep = std::min<std::int64_t>(common, std::max<std::int64_t>(std::ssize(target) - 1, 0));
  if (state.needed() && keep < kv.length()) keep = 0;
  if (keep > 0) {
    kv.truncate(keep);
  } else {
    forget();
  }
  ids = std::move(target);
  return keep;
}

void Sequence::forget() {
  kv.truncate(0);
  state.release();
}

}  // namespace adze::engine
