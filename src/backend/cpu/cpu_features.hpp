// What the processor can run, and which kernel table that means.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernel_table.hpp"
#include "base/result.hpp"

namespace adze::cpu {

// The tables this machine can execute, best first; the scalar one is always there.
std::span<const KernelTable* const> available_tables();

// The best table, or the one that `forced` names (PrepareOptions::kernel_set). Error: invalid_argument with the names
// to choose from, when it is unknown or the machine cannot run it.
Result<const KernelTable*> choose_table(std::string_view forced);

// Bytes of the largest cache, 0 when the system does not say.
std::uint64_t last_cache_bytes();

struct CpuDescription {
  std::string model;                  // "Intel(R) Xeon(R) ..."
  std::vector<std::string> features;  // those that the kernels know: "avx2", "fma", "avx512vnni" ...
};
CpuDescription describe_cpu();

}  // namespace adze::cpu
