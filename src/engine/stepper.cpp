#include "engine/stepper.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace adze::engine {

static_assert(sample::kMaximaBlock == backend::kLogitBlock);

Stepper::Stepper(backend::Prepared& backend, int max_rows) : backend_(&backend), max_rows_(max_rows) {
  ADZE_CHECK(max_rows > 0, "{} rows per batch", max_rows);
  rows_.reserve(static_cast<std::size_t>(max_rows));
  wanted_positions_.reserve(static_cast<std::size_t>(max_rows));
}

void Stepper::begin() {
  rows_.clear();
  members_.clear();
  pages_.clear();
  wanted_positions_.clear();
}

Result<int> Stepper::add(Sequence& sequence, int limit, const Wants& wants, std::span<const std::int32_t> draft) {
  const auto count = static_cast<int>(std::min<std::int64_t>({limit, free_rows(), sequence.waiting()}));
  if (count <= 0) return 0;
  const std::int64_t first = sequence.kv.length();
  if (count < sequence.waiting()) draft = {};
  draft = draft.first(std::min(draft.size(), static_cast<std::size_t>(free_rows() - count)));
  ADZE_TRY_STATUS(sequence.kv.reserve(first + count + std::ssize(draft)));
  const auto index = static_cast<std::int32_t>(members_.size());
  const auto add_row = [&](std::int32_t token, std::int64_t position, bool wanted) {
    rows_.push_back(
        {.token = token, .sequence = index, .position = static_cast<std::int32_t>(position), .wants_logits = wanted});
    if (wanted) wanted_positions_.push_back(position);
  };
  for (std::int64_t position = first; position < first + count; ++position) {
    add_row(sequence.ids[static_cast<std::size_t>(position)], position, wants(position));
  }
  for (std::size_t i = 0; i < draft.size(); ++i) add_row(draft[i], first + count + static_cast<std::int64_t>(i), true);
  members_.push_back({.sequence = &sequence, .rows = count});
  pages_.push_back({.full = sequence.kv.full(),
                    .sliding = sequence.kv.sliding(),
                    .slot = std::max(sequence.kv.slot(), 0),
                    .replay = sequence.replay,
                    .certain = count});
  return count;
}

Status Stepper::run() {
  if (rows_.empty()) return {};
  ADZE_TRY_STATUS(backend_->run({.rows = rows_, .sequences = pages_}));
  for (const Member& member : members_) {
    member.sequence->kv.commit(member.rows);
    member.sequence->replay = 0;
  }
  return {};
}

void Stepper::accept_draft(Sequence& sequence, int rows) {
  sequence.kv.commit(rows, rows);
  sequence.kv.shrink();
  sequence.replay = sequence.kv.slot() >= 0 ? rows : 0;
}

}  // namespace adze::engine
