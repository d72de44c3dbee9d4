#include "sample/log_probabilities.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "sample/sampler.hpp"

namespace adze::sample {

Status check_top_log_probabilities(int top) {
  if (top >= 0 && top <= limits::kMaxTopLogprobs) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("top_logprobs is {}, but must be from 0 to {}", top, limits::kMaxTopLogprobs));
}

void log_probabilities(const Row& row, std::int32_t drawn, int top, Scratch& scratch, LogProbabilities& out) {
  const RowScan scan = scan_row(row);
  ADZE_CHECK(scan.finite, "log-probabilities of a row that the sampler refused");
  ADZE_CHECK(drawn >= 0 && static_cast<std::size_t>(drawn) < row.logits.size(), "token {}", drawn);
  scratch.weights_.resize(row.logits.size());
  const double log_sum = std::log(weigh(row.logits, scan.max, scratch.weights_));
  const auto of = [&](std::int32_t id) -> TokenLogProbability {
    const double above = static_cast<double>(row.logits[static_cast<std::size_t>(id)]) - static_cast<double>(scan.max);
    return {.id = id, .log_probability = static_cast<float>(above - log_sum)};
  };
  out.drawn = of(drawn);
  out.top.clear();
  const int count = std::min(top, static_cast<int>(row.logits.size()));
  if (count <= 0) return;
  take_top_k(row, count, scratch.candidates_);
  for (const Candidate& c : scratch.candidates_) out.top.push_back(of(c.id));
}

}  // namespace adze::sample
