#include "speculate/gate.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace adze::speculate {
namespace {

// Every policy number of the gate.
constexpr double kFirstGuess = 0.6;  // acceptance before anything is known, worth one draft
constexpr double kFade = 0.9;        // of what is remembered, with each draft
constexpr double kNeighbour = 1.0;   // drafts that the position before counts for
constexpr int kShortestWait = 4;     // tokens
constexpr int kLongestWait = 32;     // a single token in 33 costs 0.3 % where a second row costs 8 % of the first
constexpr int kStale = 4;            // tokens without a draft after which what is remembered counts for less:
constexpr double kStaleTries = 2.0;  // one accepted token is then enough to go on
constexpr double kLeastGain = 0.02;  // tokens: a draft that is expected to gain less is not worth its trouble

}  // namespace

Gate::Gate(DraftRules rules, double draft_cost) : rules_(rules), draft_cost_(draft_cost), wait_(kShortestWait) {
  ADZE_CHECK(rules.longest >= 1 && rules.longest <= limits::kMaxDraft, "drafts of {}", rules.longest);
  memory_[0] = {.hits = kFirstGuess, .tries = 1};
}

// A position that was reached seldom is taken to be like the one before it.
double Gate::behind(double acceptance_before, int position) const {
  const Memory& m = memory_[static_cast<std::size_t>(position)];
  return (m.hits + kNeighbour * acceptance_before) / (m.tries + kNeighbour);
}

double Gate::acceptance(int position) const {
  double a = memory_[0].hits / memory_[0].tries;
  for (int i = 1; i <= position; ++i) a = behind(a, i);
  return a;
}

double Gate::cost(const CostTable& costs, int other_rows, int draft, std::int64_t context) const {
  return costs.of(other_rows + 1 + draft, context) + draft_cost_ * static_cast<double>(draft) * costs.of(1, context);
}

int Gate::choose(const CostTable& costs, int other_rows, int most, std::int64_t context) const {
  if (cooldown_ > 0) return 0;
  most = std::min(most, rules_.longest);
  const double plain_tokens = static_cast<double>(other_rows + 1);
  const double plain_cost = cost(costs, other_rows, 0, context);
  // Tokens that a draft gains over what the same time gives without one.
  const auto gain = [&](double expected, double with_draft) {
    return expected - (with_draft - plain_cost) * plain_tokens / plain_cost;
  };
  double best = plain_tokens / plain_cost;
  int chosen = 0;
  double reached = 1;
  double expected = 0;
  double a = 0;
  for (int n = 1; n <= most; ++n) {
    a = n == 1 ? acceptance(0) : behind(a, n - 1);
    reached *= a;
    expected += reached;
    const double with_draft = cost(costs, other_rows, n, context);
    const double value = (plain_tokens + expected) / with_draft;
    if (value <= best || gain(expected, with_draft) < kLeastGain) continue;
    best = value;
    chosen = n;
  }
  if (chosen > 0 || most < 1 || plain_run_ < wait_) return chosen;
  // Try one, unless even an accepted one would not pay.
  return gain(1, cost(costs, other_rows, 1, context)) >= kLeastGain ? 1 : 0;
}

void Gate::verified(int drafted, int accepted) {
  ADZE_CHECK(drafted > 0 && drafted <= limits::kMaxDraft && accepted >= 0 && accepted <= drafted, "{} of {} accepted",
             accepted, drafted);
  ++statistics_.verify_steps;
  statistics_.drafted += drafted;
  statistics_.accepted += accepted;
  for (int i = 0; i < std::min(accepted + 1, drafted); ++i) {
    Memory& m = memory_[static_cast<std::size_t>(i)];
    m.hits = m.hits * kFade + (i < accepted ? 1.0 : 0.0);
    m.tries = m.tries * kFade + 1.0;
  }
  wait_ = accepted == 0 ? std::min(2 * wait_, kLongestWait) : std::max(wait_ / 2, kShortestWait);
  cooldown_ = accepted < drafted ? rules_.cooldown : 0;
  plain_run_ = 0;
  closed_ = false;
}

void Gate::plain(bool by_gate) {
  ++statistics_.plain_steps;
  if (by_gate) {
    ++statistics_.closed_steps;
    if (!closed_) ++statistics_.times_closed;
  }
  closed_ = by_gate;
  if (cooldown_ > 0) --cooldown_;
  if (plain_run_ < kLongestWait) ++plain_run_;
  if (plain_run_ == kStale) fade(kStaleTries);
}

void Gate::fade(double most_tries) {
  for (Memory& m : memory_) {
    if (m.tries <= most_tries) continue;
    m.hits *= most_tries / m.tries;
    m.tries = most_tries;
  }
}

}  // namespace adze::speculate
