// llama.cpp's own benchmark programs, run beside Adze on the same model: llama-bench, and for several texts side by
// side llama-batched-bench where it lies in the same folder.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/bench/cases.hpp"

namespace adze::cli::bench {

struct Peer {
  std::filesystem::path program;          // llama-bench
  std::filesystem::path batched_program;  // llama-batched-bench; empty: there is none
};
// Errors: not_found.
Result<Peer> find_peer(const std::filesystem::path& program);

// One measured case, as the program printed it.
struct PeerSample {
  Case what;
  double tokens_per_second = 0;
};
// The output of `llama-bench -o json` and of `llama-batched-bench --output-format jsonl`. `version` gets what the
// former says about its build. Errors: io, naming the program, when it is something else.
Result<std::vector<PeerSample>> parse_llama_bench(std::string_view output, std::string* version);
Result<std::vector<PeerSample>> parse_batched_bench(std::string_view output);

struct PeerRound {
  std::string version;                       // "llama.cpp 0c1e570"
  std::vector<std::optional<double>> rates;  // of each case; nothing where the peer has no program for it
};
// Every case once, each after a warm-up. Errors: io (it failed: its last words; or it left a case out), cancelled.
Result<PeerRound> run_peer(const Peer& peer, const std::filesystem::path& model, int threads,
                           std::span<const Case> cases);

}  // namespace adze::cli::bench
