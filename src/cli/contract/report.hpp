// The folder that a run of a contract leaves, and what is done with such folders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/contract/run.hpp"

namespace adze::cli::contract {

// What a run was made on; it is kept beside the figures.
struct Environment {
  std::string version, processor, kernel_set, model, model_file;
  int threads = 0;
  std::int64_t file_bytes = 0;
  std::string numeric_class{}, route{}, speculation{};
};

// The figures that are compared between runs.
struct Figures {
  double first_token_ms = 0;  // median over requests
  double prompt_rate = 0;     // computed prompt tokens per second until the first token, over all requests
  double decode_rate = 0;     // RunRecord::decode_rate
  double plain_rate = 0;      // the same without drafts
};
Figures figures_of(const Outcome& outcome);

// Makes a folder that must not exist yet. Errors: invalid_argument (it exists), io.
Status make_folder(const std::filesystem::path& folder);
// Copies a result's files into such a folder. Errors: those, and of reading and writing.
Status keep_as_baseline(const std::filesystem::path& result, const std::filesystem::path& name);

// Writes contract.json, environment.json, metrics.json, routes.json, trace.json and summary.md into an existing folder.
Status write_folder(const std::filesystem::path& folder, const Contract& contract, const Outcome& outcome,
                    const Environment& environment);
std::string summary(const Contract& contract, const Outcome& outcome, const Environment& environment);

// What a folder's metrics.json says.
struct Stored {
  std::string contract_id, contract_digest, model, processor;
  bool correct = false;
  Figures figures;
};
// Errors: those of reading; corrupt_file.
Result<Stored> read_folder(const std::filesystem::path& folder);
// Whether two runs may be compared: of one contract and one model, both correct. Errors: invalid_argument.
Status check_comparable(const Stored& a, const Stored& b);
// Figures of `now` that are worse than those of `before` by more than `band` (0.1: a tenth), one sentence each.
std::vector<std::string> worse(const Figures& before, const Figures& now, double band);

}  // namespace adze::cli::contract
