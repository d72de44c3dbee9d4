// How long a request's next draft should be, from what its drafts came to so far and from what rows cost.
//
// The gate keeps, for each position of a draft, how often the token there was accepted when all before it were: counts
// that fade, so it holds the last ten or so drafts. Of n drafted tokens it then expects E(n) = a1 + a1 a2 + ...
// accepted ones, and the pass of R other rows gives R + 1 + E(n) tokens for the cost of R + 1 + n rows. The n with the
// most tokens per cost is chosen; 0 when none beats the pass without a draft.
//
// Where 0 is best nothing would ever be learnt again, so after a number of tokens without a draft one single token is
// tried. The wait doubles with every draft of which nothing was accepted, and halves with every other.
#pragma once

#include <array>
#include <cstdint>

#include "base/limits.hpp"
#include "speculate/cost_table.hpp"
#include "speculate/drafter.hpp"

namespace adze::speculate {

struct SpeculationStatistics {
  std::int64_t drafted = 0, accepted = 0;           // tokens
  std::int64_t verify_steps = 0, plain_steps = 0;   // with and without a draft
  std::int64_t closed_steps = 0, times_closed = 0;  // of the plain ones: those the gate wanted so, and in how many runs
  bool operator==(const SpeculationStatistics&) const = default;
};

class Gate {
 public:
  // `draft_cost`: what drafting one token costs, as a share of a pass of one row; 0 for look-ups.
  explicit Gate(DraftRules rules = {}, double draft_cost = 0);

  // Tokens to draft, at most `most`; 0: none. other_rows: rows that the pass computes for others in any case. context:
  // positions before the request's next row. Ask before a drafter works, with what is wanted at most; and again with
  // the draft's size as `most` when it has come, since a pass may have filled meanwhile.
  int choose(const CostTable& costs, int other_rows, int most, std::int64_t context = 0) const;

  // A step verified `drafted` > 0 tokens, of which the first `accepted` stood.
  void verified(int drafted, int accepted);
  // A step gave the request a token without a draft. by_gate: because choose() said 0.
  void plain(bool by_gate = false);

  // The chance that the token at `position` (from 0) of a draft is accepted when those before it are.
  double acceptance(int position) const;
  const SpeculationStatistics& statistics() const { return statistics_; }

 private:
  struct Memory {
    double hits = 0, tries = 0;
  };
  double cost(const CostTable& costs, int other_rows, int draft, std::int64_t context) const;
  double behind(double acceptance_before, int position) const;
  void fade(double most_tries);

  DraftRules rules_;
  double draft_cost_;
  std::array<Memory, limits::kMaxDraft> memory_{};
  int plain_run_ = 0;  // tokens since the last draft
  int wait_;           // tokens without a draft before one is tried although none seems to pay
  int cooldown_ = 0;
  bool closed_ = false;
  SpeculationStatistics statistics_;
};

}  // namespace adze::speculate
