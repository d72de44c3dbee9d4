// A profile: what was measured to be fastest for one model on one machine, and what a forward pass costs there. It
// never changes a bit of what is computed. Files are JSON, named by what they are valid for, and may be thrown away at
// any time. docs/design/0015-tuning.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "backend/choices.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"

namespace adze::tune {

// What a profile is valid for. Any difference makes it another machine's or another model's.
struct Subject {
  std::string processor;   // its own name for itself
  std::string kernel_set;  // "avx512_vnni"
  int cpus = 0;            // that the process may use
  std::string build;       // version of this program
  std::string weights;     // digest of the model's weights
  std::string settings;    // compute type, KV type and threads: "compute auto, kv f16, threads auto"
  bool operator==(const Subject&) const = default;
};

// Milliseconds of a forward pass of `rows` rows of one sequence, behind nothing and behind Profile::long_context
// positions: for whoever plans how many rows to verify (speculate::CostTable).
struct Cost {
  int rows = 0;
  double short_ms = 0.0, long_ms = 0.0;  // long_ms 0: not measured
  bool operator==(const Cost&) const = default;
};

// How much all choices of a regime together gain.
struct RegimeGain {
  backend::Regime regime = backend::Regime::one_short;
  double built_in_ms = 0.0, chosen_ms = 0.0;  // of the pass that was measured
  bool operator==(const RegimeGain&) const = default;
};

struct Profile {
  Subject subject;
  std::string model;     // its name, for people
  int long_context = 0;  // positions behind which the long contexts were measured; 0: none
  std::vector<backend::Choice> choices;
  std::vector<RegimeGain> gains;
  std::vector<Cost> costs;  // ascending by rows
  bool operator==(const Profile&) const = default;
};

std::string to_json(const Profile& profile);
// Errors: corrupt_file, saying what is wrong with which field; unsupported_feature (another version).
Result<Profile> parse_profile(std::string_view json);

// Where the profile of a subject lies in `directory`.
std::filesystem::path profile_path(const std::filesystem::path& directory, const Subject& subject);

// Errors: not_found; io; those of parse_profile, with the file's name; unsupported_feature (of something else: says
// what differs).
Result<Profile> read_profile(const std::filesystem::path& path, const Subject& subject);
// Atomically; makes the directory where it is not there. Errors: io, disk_full.
Status write_profile(const std::filesystem::path& path, const Profile& profile,
                     AtomicFile::Replace replace = AtomicFile::Replace::file);

}  // namespace adze::tune
