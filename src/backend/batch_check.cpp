#include "backend/batch_check.hpp"

#include <fmt/format.h>

#include "base/limits.hpp"

namespace adze::backend {

Status check_batch(const Batch& batch, const ops::Plan& plan, int max_rows, std::int64_t pages) {
  if (batch.rows.size() > static_cast<std::size_t>(max_rows)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} rows in a batch, at most {} are prepared for", batch.rows.size(), max_rows));
  }
  for (const Row& row : batch.rows) {
    if (row.token < 0 || row.token >= plan.vocabulary_size) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("token id {} is not in the vocabulary (0..{})", row.token, plan.vocabulary_size - 1));
    }
    if (row.sequence < 0 || static_cast<std::size_t>(row.sequence) >= batch.sequences.size()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("row of sequence {}, the batch has {}", row.sequence, batch.sequences.size()));
    }
    const auto own = batch.sequences[static_cast<std::size_t>(row.sequence)].full;
    if (row.position < 0 || row.position >= plan.context_length ||
        static_cast<std::size_t>(row.position / kPageTokens) >= own.size()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("position {} lies outside the sequence's {} pages or the context of {}", row.position,
                              own.size(), plan.context_length));
    }
    for (const std::int32_t page : own) {
      if (page < 0 || page >= pages) {
        return fail(ErrorCode::invalid_argument, fmt::format("page {} is not one of {}", page, pages));
      }
    }
  }
  return {};
}

Status check_options(const PrepareOptions& options) {
  if (options.threads < 0 || options.threads > limits::kMaxThreads) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} threads; 1 to {} are possible, 0 chooses", options.threads, limits::kMaxThreads));
  }
  if (options.max_batch_rows < 1 || options.max_batch_rows > limits::kMaxBatchRows) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("batches of {} rows; 1 to {} are possible", options.max_batch_rows, limits::kMaxBatchRows));
  }
  if (options.pack_in_memory && !options.packs.directory.empty()) {
    return fail(ErrorCode::invalid_argument, "weights are packed into memory or into files, not both");
  }
  if (options.max_slots < 1 || options.max_slots > limits::kMaxBatchRows) {
    return fail(ErrorCode::invalid_argument, fmt::format("{} slots of recurrent state; 1 to {} are possible",
                                                         options.max_slots, limits::kMaxBatchRows));
  }
  return {};
}

}  // namespace adze::backend
