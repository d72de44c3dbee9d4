// Measures what a prepared plan may choose (backend/choices.hpp), on its own weights and in whole passes: candidates in
// turns, round by round, each shape's dispatches timed apart, a choice only for a gain that noise does not explain.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"
#include "tune/profile.hpp"
#include "tune/samples.hpp"

namespace adze::tune {

// What a choice must gain at least: less is not worth the trust in one measurement.
inline constexpr double kLeastGain = 1.02;

// The deepest of the long contexts that are measured, and the longest passes that are tried for prompts.
inline constexpr int kLongestContext = 4096;
inline constexpr int kLongestChunk = 512;

double steady_seconds();

struct TuneSetup {
  int positions = 0;     // that the plan was prepared for, and
  int max_rows = 0;      // the rows of its passes
  int chunk = 0;         // the built-in rows of a prompt's passes
  double seconds = 0.0;  // to take, about
  bool choose_threads = true, choose_chunk = true;
  std::function<bool(double share)> progress{};  // false ends it (cancelled)
  std::function<double()> now = steady_seconds;
};

// One candidate against the built-in rule's.
struct Trial {
  backend::Choice choice;  // gain: the ratio
  double error = 0.0;      // of the gain, one standard deviation
  bool chosen = false;
};

struct Measured {
  Profile profile;  // its subject and model are the caller's to fill in
  std::vector<Trial> trials;
  std::vector<std::string> left_out;  // what the time did not suffice for, or the context
};

// The prepared plan goes on with what was chosen. Errors: cancelled; those of run().
Result<Measured> measure_profile(backend::Prepared& prepared, const ops::Plan& plan, const TuneSetup& setup);

// Tokens per second of generating at the start of a context, and of prompts: a few passes of each.
struct Rates {
  double generate = 0.0, prompt = 0.0;
};
Result<Rates> measure_rates(backend::Prepared& prepared, const ops::Plan& plan, const TuneSetup& setup);

}  // namespace adze::tune
