// A contract carried out: once plainly and one by one as the reference, then in rounds with and without drafts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "base/result.hpp"
#include "cli/contract/contract.hpp"

namespace adze::cli::contract {

struct AnswerRecord {
  std::string name;
  std::int64_t prompt_length = 0;
  Generation generation;
};

// All requests once, by an engine that had nothing to go by.
struct RunRecord {
  std::vector<AnswerRecord> answers;  // in the contract's order
  EngineStatistics engine;
  double seconds = 0;

  // Tokens behind the first ones per second of the time from the first token to the last, over all requests.
  double decode_rate() const;
};

struct Outcome {
  RunRecord reference;              // one by one, nothing reused, no drafts
  std::vector<RunRecord> plain;     // as the contract says but without drafts, one a round
  std::vector<RunRecord> measured;  // as the contract says
  std::vector<std::string> faults;  // of correctness or determinism, one sentence each
  std::vector<std::string> slow;    // speeds that were asked for and missed
  std::vector<bool> loops;          // of each answer
  double gain = 0;                  // median decode rate with drafts over that without
  bool gain_counts = false;         // no answer loops

  bool correct() const { return faults.empty(); }
};

struct RunOptions {
  int rounds = 3;                        // at least 2: the second says whether the first was luck
  std::function<Result<Engine>()> load;  // a fresh engine
  std::function<bool()> interrupted;
  std::function<void(double share)> progress;
};

// Errors: those of loading and of requests (a request that fails is a fault, not an error), cancelled.
Result<Outcome> run_contract(const Contract& contract, const RunOptions& options);

}  // namespace adze::cli::contract
