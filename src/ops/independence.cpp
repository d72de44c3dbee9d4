#include "ops/independence.hpp"

#include <algorithm>
#include <variant>

namespace adze::ops {
namespace {

bool meet(const std::vector<BufferId>& a, const std::vector<BufferId>& b) {
  return std::ranges::any_of(a, [&](BufferId id) { return std::ranges::find(b, id) != b.end(); });
}

// The KV or state layer that a step touches, -1: none. Attention that stores nothing reads a layer all the same.
int kv_layer(const Step& step) {
  if (const auto* prep = std::get_if<AttentionPrep>(&step)) return prep->kv_layer;
  if (const auto* attend = std::get_if<Attend>(&step)) return attend->kv_layer;
  return -1;
}
int state_layer(const Step& step) {
  if (const auto* prep = std::get_if<DeltaPrep>(&step)) return prep->state_layer;
  if (const auto* scan = std::get_if<DeltaScan>(&step)) return scan->state_layer;
  return -1;
}
bool same_layer(int a, int b) { return a >= 0 && a == b; }

}  // namespace

bool independent(const Step& a, const Step& b) {
  const Access x = step_access(a), y = step_access(b);
  if (meet(x.writes, y.reads) || meet(x.reads, y.writes) || meet(x.writes, y.writes)) return false;
  if (!stores(a) && !stores(b)) return true;
  return !same_layer(kv_layer(a), kv_layer(b)) && !same_layer(state_layer(a), state_layer(b));
}

std::vector<SideBySide> independent_steps(const Plan& plan) {
  std::vector<SideBySide> found;
  const int steps = static_cast<int>(plan.steps.size());
  for (int second = 1; second < steps; ++second) {
    int first = second;
    while (first > 0 &&
           independent(plan.steps[static_cast<std::size_t>(first - 1)], plan.steps[static_cast<std::size_t>(second)])) {
      --first;
    }
    if (first < second) found.push_back({.first = first, .second = second});
  }
  return found;
}

}  // namespace adze::ops
