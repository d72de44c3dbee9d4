// What a request asks of the sampler, under the field's names, and the check that its numbers make sense.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace adze::sample {

// Every field's neutral value switches its sampler off; the defaults sample the model's own distribution.
struct SamplerParameters {
  float temperature = 1.0f;         // >= 0; 0: greedy, ties to the lowest id
  int top_k = 0;                    // >= 0; 0: off, 1: greedy
  float top_p = 1.0f;               // 0..1; 1: off, 0: greedy
  float min_p = 0.0f;               // 0..1; 0: off
  float typical_p = 1.0f;           // 0..1; 1: off
  float repetition_penalty = 1.0f;  // > 0; 1: off
  float presence_penalty = 0.0f;    // any finite number, negative ones encourage
  float frequency_penalty = 0.0f;
  int penalty_window = 64;                   // last tokens (prompt included) that the penalties see; -1: all, 0: off
  float dry_multiplier = 0.0f;               // >= 0; 0: off
  float dry_base = 1.75f;                    // >= 1
  int dry_allowed_length = 2;                // >= 1: repeats shorter than this are free
  int dry_window = -1;                       // last tokens searched for repeats; -1: all, 0: off
  std::vector<std::int32_t> dry_breakers{};  // tokens that no repeat reaches across
  std::vector<std::pair<std::int32_t, float>> logit_bias{};  // added; several for one token add up
  std::vector<std::int32_t> banned{};                        // never drawn
  std::vector<std::int32_t> allowed{};                       // nothing else is drawn; empty: everything may be
  std::uint64_t seed = 0;

  // The draw is an argmax, and no randomness is used.
  bool greedy() const { return temperature == 0.0f || top_k == 1 || top_p == 0.0f; }
};

// Errors: invalid_argument, naming the field, its value and what it may be.
Status validate(const SamplerParameters& parameters, int vocabulary);

// The samplers in force, in the order in which they run: "top-k 40 -> temperature 0.8 -> draw (seed 7)". with_seed:
// whether the seed is known yet.
std::string describe_chain(const SamplerParameters& parameters, bool with_seed = true);

}  // namespace adze::sample
