#include "engine/host.hpp"

#include <chrono>
#include <random>

namespace adze::engine {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::uint64_t seed() {
  std::random_device device;
  // 53 bits: a seed that was reported can be given back, through --seed and through readers of JSON that use doubles.
  return (static_cast<std::uint64_t>(device()) << 32 | device()) >> 11;
}

}  // namespace

Host system_host() { return {.seconds = seconds, .unix_seconds = unix_seconds, .seed = seed}; }

}  // namespace adze::engine
