// What the engine takes from the outside world, as functions: the core itself has no clock and no randomness.
#pragma once

#include <cstdint>

namespace adze::engine {

struct Host {
  double (*seconds)();             // of a steady clock, for statistics
  std::int64_t (*unix_seconds)();  // the time of day, for chat templates
  std::uint64_t (*seed)();         // a fresh one, where a request brings none
};

// The operating system's.
Host system_host();

}  // namespace adze::engine
