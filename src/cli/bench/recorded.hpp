// Rates of a program that is not run beside Adze, measured once, with the limit of the machine at that time: scaled by
// the limit now over the limit then they are a peer still.
#pragma once

#include <optional>
#include <string_view>

#include "backend/machine.hpp"
#include "cli/bench/cases.hpp"

namespace adze::cli::bench {

inline constexpr std::string_view kRecordedPeer = "ik_llama.cpp 8337e4cd";

struct Recorded {
  double tokens_per_second = 0;
  double limit = 0;       // then: bytes read or multiply-adds, per second
  bool by_memory = true;  // which of the two bounded the case

  double scaled(double read_rate, const backend::MultiplyRates& multiply) const {
    return tokens_per_second * (by_memory ? read_rate : multiply.bytes) / limit;
  }
};

// Two threads of a 2-CPU Sapphire-Rapids-class Xeon with the AVX-512 VNNI kernels: nothing for other threads or kernel
// sets, other models and other cases. The number of generated tokens makes no difference to a rate.
std::optional<Recorded> find_recorded(const ModelInfo& model, const Case& what, int threads,
                                      std::string_view kernel_set);

}  // namespace adze::cli::bench
