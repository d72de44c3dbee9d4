// Profiles (tune/profile.hpp) at load, and measuring one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "adze/adze.hpp"
#include "backend/backend.hpp"
#include "model/model.hpp"
#include "speculate/cost_table.hpp"
#include "tune/profile.hpp"

namespace adze::engine {

struct FoundProfile {
  std::optional<tune::Profile> profile;
  std::string note;      // one line: which one is used, or why none is
  bool refused = false;  // the named one is for something else
};

// The profile that the options name or that lies in their directory, for this model on this machine. Errors: those of
// a named one that cannot be read; any other is none, and the note says why.
Result<FoundProfile> find_profile(const LoadOptions& options, const model::Model& model);

// What a profile of this model must be for. Error: invalid_argument (an unknown kernel set).
Result<tune::Subject> subject_of(const LoadOptions& options, const model::Model& model);

// The profile's choices that the options leave open.
std::vector<backend::Choice> open_choices(const tune::Profile& profile, const LoadOptions& options);

// What passes cost here as the profile measured it; without one, the built-in table.
speculate::CostTable cost_table(const std::optional<tune::Profile>& profile);

// A model that is loaded with these options, and what it would be prepared with but for its profile (load.cpp).
struct Loaded {
  std::shared_ptr<model::Model> model;
  backend::PrepareOptions prepare;
};
int default_chunk();  // rows of a prompt's passes where nobody says otherwise
Result<Loaded> load_for_tuning(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace adze::engine
