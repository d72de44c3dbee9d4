// What this machine can do at most, and what share of it a measured rate is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "backend/machine.hpp"
#include "base/result.hpp"
#include "cli/context.hpp"

namespace adze::cli::bench {

// The least time that a forward can take, and what bounds it.
struct Bound {
  double seconds = 0;
  bool by_memory = true;
  double amount = 0;  // bytes read (by_memory) or multiply-adds of one forward

  double rate() const { return amount / seconds; }  // the machine's limit: bytes or multiply-adds per second
  // "37.8 GB/s = 65 % of 58.3 GB/s", "310 GMAC/s = 44 % of 705 GMAC/s", of a forward that took `measured` seconds
  std::string share_text(double measured) const;
};
Bound bound_of(const ForwardWork& work, double read_rate, const backend::MultiplyRates& multiply);

// The limits of the run, the best of all that was measured: a busy neighbour makes a limit look low, nothing makes it
// look high. Read rates are kept by working set.
class Limits {
 public:
  Limits(std::string kernel_set, int threads) : kernel_set_(std::move(kernel_set)), threads_(threads) {}

  // Measures what `bound()` of such a forward needs, once more. working_set: bytes. Errors: those of
  // backend/machine.hpp.
  Status measure(std::uint64_t working_set);
  // After measure() of the same working set.
  Bound bound(const ForwardWork& work, std::uint64_t working_set) const;
  double read_rate(std::uint64_t working_set) const;
  const backend::MultiplyRates& multiply_rates() const { return multiply_; }

 private:
  struct ReadRate {
    std::uint64_t working_set;
    double rate;
  };
  std::vector<ReadRate>::const_iterator find(std::uint64_t working_set) const;

  std::string kernel_set_;
  int threads_;
  std::vector<ReadRate> reads_;
  backend::MultiplyRates multiply_;
};

// The kernels and the threads that the settings and options say. Errors: invalid_argument.
struct Team {
  std::string kernel_set;
  int threads = 0;
};
Result<Team> team_of(const Context& context);

// Bytes that all steps of such forwards go through: every weight, and the texts' cache.
std::uint64_t working_set_of(const Engine& engine, const ForwardWork& work);

}  // namespace adze::cli::bench
