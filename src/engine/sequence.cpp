#include "engine/sequence.hpp"

#include <algorithm>
#include <utility>

namespace adze::engine {

std::int64_t Sequence::retarget(std::vector<std::int32_t> target) {
  const auto known = ids.begin() + static_cast<std::ptrdiff_t>(kv.length());
  const auto common = std::mismatch(ids.begin(), known, target.begin(), target.end()).first - ids.begin();
  const std::int64_t keep = std::min<std::int64_t>(common, std::max<std::int64_t>(std::ssize(target) - 1, 0));
  kv.truncate(keep);
  ids = std::move(target);
  return keep;
}

}  // namespace adze::engine
