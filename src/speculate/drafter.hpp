// Who guesses how a text goes on. A draft never changes what is said: every token of it is verified, and one that the
// model would not have drawn is dropped (docs/design/0018, "Drafts"). All of it is a pure function of what was asked
// before; one thread drives it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/limits.hpp"
#include "sample/sampler.hpp"

namespace adze::speculate {

struct DraftJob {
  std::uint64_t request = 0;           // never reused
  std::span<const std::int32_t> text;  // prompt and output so far; the last token is not computed yet
  std::int64_t prompt_length = 0;
  int most = 0;                              // > 0: draft tokens wanted
  const sample::Sampler* sampler = nullptr;  // the request's own
  std::span<const float> hidden{};           // for heads on the model's own hidden rows; unused so far
  std::vector<std::int32_t> draft{};         // out; at most `most`
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Fills each job's draft; an empty one means that there is nothing to go by. A request's text only grows from call to
  // call. At most one job of a request.
  virtual void propose(std::span<DraftJob> jobs) = 0;
  // What became of the last draft of a request, or of the beginning that was verified of it: its first `accepted`
  // tokens are part of the text.
  virtual void verified(std::uint64_t request, std::span<const std::int32_t> draft, int accepted) = 0;
  // The request is over. Of one that was never seen: nothing happens.
  virtual void forget(std::uint64_t request) = 0;
};

// Rules that follow from the model that verifies.
struct DraftRules {
  int longest = limits::kMaxDraft;  // tokens of a draft, 1..limits::kMaxDraft
  int least_support = 1;            // times that a continuation must have been seen before it is drafted
  int cooldown = 0;                 // tokens without a draft after one was not accepted whole

  // Attention only: a rejected row costs its computation and nothing else.
  static constexpr DraftRules attention() { return {}; }
  // Recurrent layers: a rejected row is logged, and accepted ones are replayed by the next scan, so drafts are shorter
  // and rest on evidence that has repeated itself.
  static constexpr DraftRules recurrent() { return {.longest = 8, .least_support = 2, .cooldown = 1}; }
};

}  // namespace adze::speculate
