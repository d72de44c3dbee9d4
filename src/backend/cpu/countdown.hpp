// Work that several members of a team complete together, in pieces and in any order, and that one of them then takes
// further: the one who completes it, without a barrier. Which member that is does not matter to the result.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace adze::cpu {

class Countdown {
 public:
  Countdown() = default;
  // One counter per unit of work, all zero. The memory must outlive the countdown.
  explicit Countdown(std::int32_t* done) : done_(done) {}

  // Adds `part` of a unit that is complete at `whole`. True for the one caller that completes it, who sees all that the
  // others wrote before their calls; the unit can be used again after the next barrier.
  bool complete(std::size_t unit, int part, int whole) const {
    if (part == 0) return false;
    if (part == whole) return true;
    const std::atomic_ref<std::int32_t> done(done_[unit]);
    if (done.fetch_add(part, std::memory_order_acq_rel) + part != whole) return false;
    done.store(0, std::memory_order_relaxed);
    return true;
  }

 private:
  std::int32_t* done_ = nullptr;
};

}  // namespace adze::cpu
