// How much memory this process may still use, as the operating system and its control groups see it, and the decision
// whether a model fits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace adze::engine {

// The least of: MemAvailable of /proc/meminfo (page cache that can be dropped counts as available), what the memory
// control groups of this process (version 2 or 1, with their parents) leave, and the address-space limit. Bytes; the
// largest number when nothing of it can be read. `root` stands for "/" in tests.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

struct MemoryNeed {
  std::uint64_t weights = 0;  // mapped weights too: a model whose weights are read from disk for each token is no use
  std::uint64_t scratch = 0;
  std::uint64_t states = 0;  // recurrent ones, all slots
  std::uint64_t bytes_per_page = 0;
};

// The context to load with, in positions: `wanted` when it fits into `available` bytes; when `may_shrink`, the largest
// one that fits and is at least one page. Errors: out_of_memory with need, have, and the largest context that fits.
Result<std::int64_t> fit_context(const MemoryNeed& need, std::int64_t wanted, bool may_shrink, std::uint64_t available);

// "1.5 GiB", "312 MiB", "5 KiB"
std::string format_bytes(std::uint64_t bytes);

}  // namespace adze::engine
