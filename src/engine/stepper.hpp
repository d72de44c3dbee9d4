// One pass of the model over rows of any mix of sequences: prompt chunks and decoded tokens alike. The only place that
// builds batches.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "base/result.hpp"
#include "engine/sequence.hpp"
#include "sample/chain.hpp"

namespace adze::engine {

class Stepper {
 public:
  // `max_rows`: of one batch, at most what the backend was prepared for. The backend outlives the stepper.
  Stepper(backend::Prepared& backend, int max_rows);

  using Wants = std::function<bool(std::int64_t position)>;

  // Starts a new batch; what the last one computed is no longer readable.
  void begin();
  int free_rows() const { return max_rows_ - static_cast<int>(rows_.size()); }
  // Adds the next waiting rows of a sequence, at most `limit`, after making room for them. `wants` says which
  // positions' logits are wanted. A sequence is added once per batch and stays alive until run() has returned. Returns
  // the number of rows added. Errors: out_of_memory (no pages or no slot left), and the batch is as before.
  Result<int> add(Sequence& sequence, int limit, const Wants& wants);
  // Computes the batch; its sequences' KV has grown by their rows. An empty batch does nothing. Errors: the backend's,
  // and then no sequence has grown, and those with a recurrent state, which may have moved on, are computed from the
  // start again.
  Status run();

  // Of the last batch, in the order of adding.
  int wanted_count() const { return static_cast<int>(wanted_positions_.size()); }
  std::int64_t wanted_position(int i) const { return wanted_positions_[static_cast<std::size_t>(i)]; }
  std::span<const float> logits(int i) const { return backend_->logits(i); }
  sample::Row row(int i) const { return {backend_->logits(i), backend_->logit_maxima(i)}; }

 private:
  struct Member {
    Sequence* sequence;
    int rows;
  };

  backend::Prepared* backend_;
  int max_rows_;
  std::vector<backend::Row> rows_;
  std::vector<Member> members_;
  std::vector<backend::SequencePages> pages_;
  std::vector<std::int64_t> wanted_positions_;
};

}  // namespace adze::engine
