// What this machine offers the backends that are built in, for people: `adze doctor` prints it. And what it can do at
// most, measured: every "% of the limit" divides by that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace adze::backend {

struct Machine {
  std::vector<std::string> backends;     // built into this program: "cpu"
  std::string processor;                 // its own name for itself
  std::vector<std::string> features;     // of the processor, those that a kernel set needs
  std::vector<std::string> kernel_sets;  // that it can run, best first
  int usable_cpus = 1;                   // by affinity and quota
  int cores = 1, nodes = 1;              // that these CPUs belong to; nodes of memory
  int threads = 1;                       // a model gets, where the user does not say
  std::string threads_reason;            // "one per core; 16 CPUs share 8 cores"
};
Machine describe_machine();

// The kernel set that would run: the best, or the one of this name. Errors: invalid_argument with the names to choose
// from.
Result<std::string> choose_kernel_set(std::string_view forced);

// Of all threads together, in multiply-adds per second.
struct MultiplyRates {
  double bytes = 0;   // int8 by int8, summed in int32
  double floats = 0;  // float32
};

// With one kernel set ("" is the best) on `threads` threads, now; each call takes up to a quarter of a second.
// working_set: bytes that a step reads, which decides what caches help. Errors: invalid_argument (no such kernel set),
// out_of_memory.
Result<double> measure_read_rate(std::string_view kernel_set, int threads,
                                 std::uint64_t working_set);  // bytes per second
Result<MultiplyRates> measure_multiply_rates(std::string_view kernel_set, int threads);

}  // namespace adze::backend
