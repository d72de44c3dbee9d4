// How much memory this process may still use, as the operating system and its control groups see it, and the decision
// whether a model fits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "backend/backend.hpp"
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
  std::uint64_t bytes_per_sliding_page = 0;
  // Of sliding layers, in a long context; in a shorter one there is one for each page of full layers.
  std::int64_t max_sliding_pages = std::numeric_limits<std::int64_t>::max();
};

// Pages of sliding layers for `texts` that run or are kept, each grown by at most `rows` at a time: its window, the
// rows, and what does not lie at a page's edge.
std::int64_t sliding_pages(int window, int texts, int rows);

// Pages for `context` positions in all, and of sliding layers for the windows of `sequences` that run (0: as many as
// the policy says) and of what is kept, where those are fewer. prepare.max_batch_rows is set.
void set_pages(const ops::Plan& plan, std::int64_t context, int sequences, backend::PrepareOptions& prepare);

MemoryNeed memory_need(const backend::MemoryUse& use, const backend::PrepareOptions& prepare);

// The context to load with, in positions: `wanted` when it fits into `available` bytes; when `may_shrink`, the largest
// one that fits and is at least one page. Errors: out_of_memory with need, have, and the largest context that fits.
Result<std::int64_t> fit_context(const MemoryNeed& need, std::int64_t wanted, bool may_shrink, std::uint64_t available);

// "1.5 GiB", "312 MiB", "5 KiB"
std::string format_bytes(std::uint64_t bytes);

}  // namespace adze::engine
