// Which steps of a plan could run at the same time, by what they read and write.
#pragma once

#include <vector>

#include "ops/plan.hpp"

namespace adze::ops {

// Neither writes a buffer that the other reads or writes, nor stores into a KV or state layer that the other touches.
bool independent(const Step& a, const Step& b);

// `second` needs nothing of the steps from `first` on, and they nothing of it: it could run beside them.
struct SideBySide {
  int first = 0, second = 0;  // indices into Plan::steps, first < second
  bool operator==(const SideBySide&) const = default;
};

// For each step that could have begun earlier, the earliest step that it could run beside. In the order of the plan.
std::vector<SideBySide> independent_steps(const Plan& plan);

}  // namespace adze::ops
