#include "backend/batch_check.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/limits.hpp"

namespace adze::backend {

namespace {

// Rows of one sequence, side by side.
struct Run {
  std::int32_t first, last;  // positions
};

// `window`: as sliding_window(); 0 for full layers, which see everything.
Status check_pages(std::string_view kind, std::span<const std::int32_t> table, std::int64_t pages, int window,
                   const Run& run) {
  const auto end = static_cast<std::size_t>(run.last / kPageTokens) + 1;
  if (end > table.size()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("position {} lies outside the {} {}pages of its sequence", run.last, table.size(), kind));
  }
  const auto seen = static_cast<std::size_t>(window == 0 ? 0 : std::max(run.first - window + 1, 0) / kPageTokens);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::int32_t page = table[i];
    if (page >= pages || page < -1 || (page == -1 && window == 0)) {
      return fail(ErrorCode::invalid_argument, fmt::format("{}page {} is not one of {}", kind, page, pages));
    }
    if (page == -1 && i >= seen && i < end) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("the {}page of position {} was given up, but the row at position {} still sees it", kind,
                              std::max<std::int64_t>(static_cast<std::int64_t>(i) * kPageTokens,
                                                     std::max(run.first - window + 1, 0)),
                              std::max<std::int64_t>(static_cast<std::int64_t>(i) * kPageTokens, run.first)));
    }
  }
  return {};
}

}  // namespace

int sliding_window(const ops::Plan& plan) {
  int window = 0;
  for (const ops::KvLayer& layer : plan.kv_layers) window = std::max(window, layer.window);
  return window;
}

Status check_batch(const Batch& batch, const ops::Plan& plan, const PrepareOptions& options) {
  if (batch.rows.size() > static_cast<std::size_t>(options.max_batch_rows)) {
    return fail(ErrorCode::invalid_argument, fmt::format("{} rows in a batch, at most {} are prepared for",
                                                         batch.rows.size(), options.max_batch_rows));
  }
  const int window = sliding_window(plan);
  const bool has_full = std::ranges::any_of(
      plan.kv_layers, [](const ops::KvLayer& layer) { return page_group(layer) == PageGroup::full; });
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    const Row& row = batch.rows[i];
    if (row.token < 0 || row.token >= plan.vocabulary_size) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("token id {} is not in the vocabulary (0..{})", row.token, plan.vocabulary_size - 1));
    }
    if (row.sequence < 0 || static_cast<std::size_t>(row.sequence) >= batch.sequences.size()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("row of sequence {}, the batch has {}", row.sequence, batch.sequences.size()));
    }
    if (row.position < 0 || row.position >= plan.context_length) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("position {} lies outside the context of {}", row.position, plan.context_length));
    }
    const bool begins = i == 0 || batch.rows[i - 1].sequence != row.sequence;
    if (!begins && row.position != batch.rows[i - 1].position + 1) {
      return fail(ErrorCode::invalid_argument, fmt::format("position {} of a sequence cannot follow position {}",
                                                           row.position, batch.rows[i - 1].position));
    }
    if (i + 1 < batch.rows.size() && batch.rows[i + 1].sequence == row.sequence) continue;
    std::size_t first = i;
    while (first > 0 && batch.rows[first - 1].sequence == row.sequence) --first;
    const Run run{batch.rows[first].position, row.position};
    const SequencePages& own = batch.sequences[static_cast<std::size_t>(row.sequence)];
    if (has_full) ADZE_TRY_STATUS(check_pages("", own.full, options.max_pages, 0, run));
    if (window > 0) ADZE_TRY_STATUS(check_pages("sliding ", own.sliding, options.max_sliding_pages, window, run));
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
