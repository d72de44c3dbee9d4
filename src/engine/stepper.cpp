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

Result<int> Stepper::add(Sequence& sequence, int limit, const Wants& wants) {
  const auto count = static_cast<int>(std::min<std::int64_t>({limit, free_rows(), sequence.waiting()}));
  if (count <= 0) return 0;
  const std::int64_t first = sequence.kv.length();
  ADZE_TRY_STATUS(sequence.state.take());
  ADZE_TRY_STATUS(sequence.kv.reserve(first + count));
  const auto index = static_cast<std::int32_t>(members_.size());
  for (std::int64_t position = first; position < first + count; ++position) {
    const bool wanted = wants(position);
    rows_.push_back({.token = sequence.ids[static_cast<std::size_t>(position)],
                     .sequence = index,
                     .position = static_cast<std::int32_t>(position),
                     .wants_logits = wanted});
    if (wanted) wanted_positions_.push_back(position);
  }
  members_.push_back({.sequence = &sequence, .rows = count});
  pages_.push_back({.pages = sequence.kv.indices(), .slot = sequence.state.index()});
  return count;
}

Status Stepper::run() {
  if (rows_.empty()) return {};
  if (Status status = backend_->run({.rows = rows_, .sequences = pages_}); !status) {
    for (const Member& member : members_) {
      if (member.sequence->state.needed()) member.sequence->forget();
    }
    return status;
  }
  for (const Member& member : members_) member.sequence->kv.append(member.rows);
  return {};
}

}  // namespace adze::engine
