// Drives a prepared plan the way the engine does: sequences over page tables, ragged batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"

namespace adze::test {

class Runner {
 public:
  struct Options {
    backend::PrepareOptions prepare{};
    int sequences = 1;
    int positions = 1024;  // of each sequence
  };
  // Pages are dealt out so that no sequence holds two neighbours in order: a backend that forgets the table is found.
  // Throws std::runtime_error when the backend refuses, and run() when the maxima of logits are not theirs.
  Runner(const ops::Plan& plan, Options options);

  // Called with the logits of each wanted row, in the order of the batch.
  using OnLogits = std::function<void(int sequence, std::int32_t position, std::span<const float> logits)>;

  struct Piece {  // the next tokens of one sequence
    int sequence = 0;
    std::span<const std::int32_t> tokens;
    int wanted = 1;  // logits of the last so many
  };
  void run(std::span<const Piece> pieces, const OnLogits& on_logits);

  // One sequence, in chunks of at most `chunk` tokens; the logits of the last `wanted` rows [wanted * V].
  std::vector<float> prompt(std::span<const std::int32_t> tokens, int wanted, int chunk, int sequence = 0);

  backend::Prepared& prepared() { return *prepared_; }

 private:
  std::unique_ptr<backend::Prepared> prepared_;
  std::vector<std::vector<std::int32_t>> pages_;
  std::vector<std::int32_t> lengths_;
  std::vector<backend::Row> rows_;
  std::vector<backend::SequencePages> tables_;
};

}  // namespace adze::test
