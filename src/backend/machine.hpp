// What this machine offers the backends that are built in, for people: `adze doctor` prints it.
#pragma once

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
};
Machine describe_machine();

// The kernel set that would run: the best, or the one of this name. Errors: invalid_argument with the names to choose
// from.
Result<std::string> choose_kernel_set(std::string_view forced);

}  // namespace adze::backend
