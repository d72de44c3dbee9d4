// The table of `adze bench model`: rates beside this machine's limit and beside the peers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/cases.hpp"
#include "cli/bench/limits.hpp"

namespace adze::cli::bench {

struct Row {
  Case what;
  std::vector<double> rates;       // tokens per second, of each round
  std::vector<double> peer_rates;  // empty: no peer was run, or it has no such case
  std::optional<double> recorded;  // a recorded peer's, scaled to this machine's limit now
  Bound bound;

  // Of the limit, 0..1.
  double share() const;
  // Adze's median over the better of the peers'; nothing without one.
  std::optional<double> ratio() const;
};

struct Report {
  ModelInfo model;
  int threads = 0;
  std::string kernel_set;
  std::string processor;
  std::string logits_hash;
  std::string peer;                // "llama.cpp 0c1e570"; empty: none was run
  std::uint64_t packed_bytes = 0;  // 0: the weights were read as the file stores them
  std::uint64_t peak_memory_bytes = 0;
  std::vector<Row> rows;

  std::string text() const;      // for people
  std::string markdown() const;  // one table
  std::string json() const;
};

}  // namespace adze::cli::bench
