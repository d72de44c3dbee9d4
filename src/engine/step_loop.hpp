// One step for all running requests: first a row for each that is decoding, then chunks of the prompts, in order, up to
// the batch's rows. Then every request whose text is computed to its end samples its next token.
#pragma once

#include <span>
#include <vector>

#include "engine/decoding.hpp"
#include "engine/stepper.hpp"
#include "sample/sampler.hpp"

namespace adze::engine {

class StepLoop {
 public:
  StepLoop(backend::Prepared& backend, int max_rows, int vocabulary, std::int64_t context);

  // A request that cannot go on is failed by itself (no pages, a non-finite logit); a failure of the whole batch fails
  // every request that had rows in it. Finished ones are passed over.
  void step(std::span<Decoding* const> running);

  Stepper& stepper() { return stepper_; }

 private:
  void add(Decoding& decoding, int limit);

  Stepper stepper_;
  sample::Scratch scratch_;
  std::vector<Decoding*> in_batch_;
};

}  // namespace adze::engine
