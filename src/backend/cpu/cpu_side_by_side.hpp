// Which dispatches run side by side: the threads go from one to the next without meeting, since neither needs anything
// of the other. Decided from what their steps read, write and store, and from the scratch that they work in
// (docs/design/0020).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/cpu/cpu_fusion.hpp"
#include "backend/cpu/cpu_schedule.hpp"
#include "ops/plan.hpp"

namespace adze::cpu {

// The same dispatches, in groups: each moves forward to the first group that it may be in, and the threads meet at the
// end of a group only. None moves across `border`, an index where the batch loses rows. `buffers` are the plan's.
std::vector<Dispatch> put_side_by_side(const ops::Plan& plan, std::span<const BufferUse> buffers,
                                       std::span<const Dispatch> dispatches, std::size_t border);

}  // namespace adze::cpu
