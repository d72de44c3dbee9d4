#include "tune/workload.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.hpp"

namespace adze::tune {
namespace {

// Rows of the passes that fill a context.
constexpr int kFillRows = 96;

// Tokens all over the vocabulary: a fixed sequence, no randomness.
std::int32_t token_at(int position, int vocabulary) {
  const std::uint32_t state = (static_cast<std::uint32_t>(position) + 1) * 2654435761u;
  return static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocabulary));
}

}  // namespace

Workload::Workload(backend::Prepared& prepared, const ops::Plan& plan, int positions, int max_rows,
                   std::function<double()> now)
    : prepared_(prepared),
      plan_(plan),
      positions_(std::min(positions, plan.context_length)),
      max_rows_(max_rows),
      recurrent_(!plan.state_layers.empty()),
      pages_(static_cast<std::size_t>(backend::pages_for(positions_))),
      now_(std::move(now)) {
  std::iota(pages_.begin(), pages_.end(), 0);
}

Result<double> Workload::run(int rows, int first_wanted) {
  rows_.clear();
  for (int r = 0; r < rows; ++r) {
    rows_.push_back({token_at(at_ + r, plan_.vocabulary_size), 0, at_ + r, r >= first_wanted});
  }
  const backend::SequencePages sequence{.full = pages_, .sliding = pages_};
  const double begin = now_();
  ADZE_TRY_STATUS(prepared_.run({rows_, {&sequence, 1}}));
  const double seconds = now_() - begin;
  at_ += rows;
  computed_ = recurrent_ ? at_ : std::max(computed_, at_);
  return seconds;
}

Status Workload::move_to(int depth) {
  depth_ = depth;
  // A recurrent state cannot go back, but begin again.
  if (recurrent_ && computed_ > depth) computed_ = 0;
  at_ = std::min(computed_, depth);
  while (at_ < depth) {
    const int rows = std::min({kFillRows, max_rows_, depth - at_});
    ADZE_TRY([[maybe_unused]] const double seconds, run(rows, rows));
  }
  return {};
}

Result<double> Workload::pass(int rows) {
  const int end = std::min(depth_ + kRoom, positions_);
  ADZE_CHECK(rows <= max_rows_ && depth_ + rows <= end, "{} rows behind {} of {}", rows, depth_, positions_);
  if (at_ + rows > end) ADZE_TRY_STATUS(move_to(depth_));
  return run(rows, rows <= backend::kFewRows ? 0 : rows);
}

Result<double> Workload::prompt(int tokens, int chunk) {
  ADZE_TRY_STATUS(move_to(0));
  double seconds = 0.0;
  while (at_ < tokens) {
    const int rows = std::min(chunk, tokens - at_);
    ADZE_TRY(const double more, run(rows, at_ + rows == tokens ? rows - 1 : rows));
    seconds += more;
  }
  ADZE_TRY_STATUS(move_to(0));
  return seconds;
}

}  // namespace adze::tune
