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
  int rows() const { return static_cast<int>(rows_.size()); }
  int free_rows() const { return max_rows_ - static_cast<int>(rows_.size()); }
  // Adds the next waiting rows of a sequence, at most `limit`, and `draft` behind them if these are all that wait,
  // after making room for them. `wants` says which positions' logits are wanted, of drafted ones all. A sequence is
  // added once per batch and stays alive until run() has returned. Returns the number of waiting rows added. Errors:
  // out_of_memory (no pages or no slot left), and the batch is as before.
  Result<int> add(Sequence& sequence, int limit, const Wants& wants, std::span<const std::int32_t> draft = {});
  // Computes the batch; its sequences have grown by their rows, without the drafted ones. An empty batch does nothing.
  // Errors: the backend's, and then no sequence has grown, but those with a recurrent state may have lost it.
  Status run();
  // After run(): the first `rows` drafted rows of the sequence belong to its text. Called for each that had any.
  static void accept_draft(Sequence& sequence, int rows);

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
