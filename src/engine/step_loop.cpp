#include "engine/step_loop.hpp"

namespace adze::engine {

StepLoop::StepLoop(backend::Prepared& backend, int max_rows, int vocabulary, std::int64_t context)
    : stepper_(backend, max_rows), scratch_(vocabulary, context) {}

void StepLoop::add(Decoding& decoding, int limit) {
  Sequence& sequence = decoding.sequence();
  const std::int64_t last = sequence.length() - 1;
  const auto added = stepper_.add(sequence, limit, [last](std::int64_t position) { return position == last; });
  if (!added) {
    decoding.fail(added.error());
  } else if (*added > 0) {
    in_batch_.push_back(&decoding);
  }
}

void StepLoop::step(std::span<Decoding* const> running) {
  stepper_.begin();
  in_batch_.clear();
  for (Decoding* decoding : running) {
    if (!decoding->finished() && decoding->sequence().waiting() == 1) add(*decoding, 1);
  }
  for (Decoding* decoding : running) {
    if (!decoding->finished() && decoding->sequence().waiting() > 1) add(*decoding, stepper_.free_rows());
  }
  if (const Status status = stepper_.run(); !status) {
    for (Decoding* decoding : in_batch_) decoding->fail(status.error());
    return;
  }
  int wanted = 0;
  for (Decoding* decoding : in_batch_) {
    if (decoding->sequence().waiting() == 0) decoding->accept(stepper_.row(wanted++), scratch_);
  }
}

}  // namespace adze::engine
