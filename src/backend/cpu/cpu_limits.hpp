// What the machine can do at most, measured: the rate at which a team reads a working set, and the rates at which it
// multiplies. Each takes a tenth of a second or less.
#pragma once

#include <cstdint>

#include "backend/cpu/kernel_table.hpp"
#include "backend/cpu/thread_team.hpp"
#include "backend/machine.hpp"
#include "base/result.hpp"

namespace adze::cpu {

// Bytes per second, the best of several passes over memory of that size, in huge pages where there are any: what a
// model of that size gets whose weights are read once per step. Sets beyond kMaxMeasuredBytes count as that large: no
// cache holds them. Errors: out_of_memory.
Result<double> measure_read_rate(const KernelTable& table, ThreadTeam& team, std::uint64_t working_set);

// The best of several tries, operands at hand.
backend::MultiplyRates measure_multiply_rates(const KernelTable& table, ThreadTeam& team);

}  // namespace adze::cpu
