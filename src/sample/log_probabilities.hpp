// Log-probabilities that a request asked to see: natural logarithms of the softmax of the model's own logits, before
// bias, penalties, masks and temperature (what OpenAI's API and vLLM's default mean by them).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "sample/chain.hpp"

namespace adze::sample {

class Scratch;

struct TokenLogProbability {
  std::int32_t id = 0;
  float log_probability = 0;
  bool operator==(const TokenLogProbability&) const = default;
};

struct LogProbabilities {
  TokenLogProbability drawn;
  std::vector<TokenLogProbability> top;  // best first, equal ones by the lower id; `drawn` need not be among them
};

// Whether so many of the best tokens may be asked for. Errors: invalid_argument.
Status check_top_log_probabilities(int top);

// Of the token `drawn` from `row`, a row that Sampler::sample took, and of the `top` best ones (all, where the
// vocabulary has fewer). The same bits whatever maxima the row has: the sum is of doubles in one order. Allocates
// nothing once `out` and `scratch` have their size.
void log_probabilities(const Row& row, std::int32_t drawn, int top, Scratch& scratch, LogProbabilities& out);

}  // namespace adze::sample
