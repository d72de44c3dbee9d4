#include "backend/batch_check.hpp"

#include <fmt/format.h>

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
    const auto own = batch.sequences[static_cast<std::size_t>(row.sequence)].pages;
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

}  // namespace adze::backend
