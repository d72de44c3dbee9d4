// A contract: what an engine is asked, and what must come of it. The file's format is in docs/bench-contracts.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"

namespace adze::cli::contract {

// One request. Its prompt is one of: a chat (system and user), plain text, token ids, or random ids.
struct Ask {
  std::string name;
  std::string system, user;  // of a chat
  std::string text;
  std::vector<std::int32_t> ids;
  std::int64_t random_count = 0;  // so many random ids, before `ids`
  std::uint64_t random_seed = 0;
  std::string continues;           // another request, whose chat goes on with this user text
  std::vector<std::string> after;  // these have ended before it is submitted
  std::int64_t max_tokens = 0;
  std::vector<std::int32_t> oracle;  // what it must say; empty: nobody knows

  bool is_chat() const { return !user.empty(); }
};

struct Checks {
  double least_reuse = 0;              // share of all prompt tokens that were taken over
  std::optional<double> least_gain{};  // of drafts, over plain decoding; a speed, so a missed one is exit code 4
};

struct Contract {
  std::string id, description, model;
  SamplingOptions sampling;
  std::vector<Ask> asks;  // an ask stands behind those that it continues or waits for
  Checks checks;
  std::string source;  // the file's bytes
  Digest digest;       // of these and of the user_files
};

// Errors: those of reading, and corrupt_file, which names the file, the request and the field.
Result<Contract> read_contract(const std::filesystem::path& path);
// The same of a text; `folder` is where its "user_file" entries are looked for.
Result<Contract> parse_contract(std::string text, const std::string& name, const std::filesystem::path& folder);

// The share of 8-grams of the ids that occurred before: an answer that loops has half or more.
double repeated_share(const std::vector<std::int32_t>& ids);
inline constexpr double kLoops = 0.5;

}  // namespace adze::cli::contract
