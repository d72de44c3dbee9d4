#include "golden/runner.hpp"

#include <algorithm>
#include <stdexcept>

namespace adze::test {

Runner::Runner(const ops::Plan& plan, Options options) {
  const auto sequences = static_cast<std::size_t>(options.sequences);
  options.prepare.max_pages = options.prepare.max_sliding_pages =
      backend::pages_for(options.positions) * options.sequences;
  options.prepare.max_slots = options.sequences;
  auto prepared = backend::prepare(plan, options.prepare);
  if (!prepared) throw std::runtime_error(prepared.error().message);
  prepared_ = std::move(*prepared);

  pages_.resize(sequences);
  lengths_.resize(sequences);
  for (std::int64_t page = options.prepare.max_pages; page-- > 0;) {  // backwards, to each sequence in turn
    pages_[static_cast<std::size_t>(page) % sequences].push_back(static_cast<std::int32_t>(page));
  }
  for (const auto& table : pages_) {  // slots backwards as well
    tables_.push_back(
        {.full = table, .sliding = table, .slot = options.sequences - 1 - static_cast<std::int32_t>(tables_.size())});
  }
}

void Runner::run(std::span<const Piece> pieces, const OnLogits& on_logits) {
  rows_.clear();
  for (const Piece& piece : pieces) {
    const auto count = static_cast<int>(piece.tokens.size());
    std::int32_t& length = lengths_.at(static_cast<std::size_t>(piece.sequence));
    for (int i = 0; i < count; ++i) {
      rows_.push_back({piece.tokens[static_cast<std::size_t>(i)], piece.sequence, length++, i >= count - piece.wanted});
    }
  }
  const Status status = prepared_->run({rows_, tables_});
  if (!status) throw std::runtime_error(status.error().message);
  int wanted = 0;
  for (const backend::Row& row : rows_) {
    if (!row.wants_logits) continue;
    const std::span<const float> logits = prepared_->logits(wanted), maxima = prepared_->logit_maxima(wanted);
    for (std::size_t i = 0; i < maxima.size(); ++i) {
      const std::span<const float> rest = logits.subspan(i * backend::kLogitBlock);
      const std::span<const float> block = rest.first(std::min<std::size_t>(rest.size(), backend::kLogitBlock));
      if (maxima[i] != *std::ranges::max_element(block)) throw std::runtime_error("a maximum of logits is not theirs");
    }
    on_logits(row.sequence, row.position, logits);
    ++wanted;
  }
}

std::vector<float> Runner::prompt(std::span<const std::int32_t> tokens, int wanted, int chunk, int sequence) {
  std::vector<float> logits;
  const auto size = static_cast<int>(tokens.size());
  for (int first = 0; first < size; first += chunk) {
    const int count = std::min(chunk, size - first);
    const int from = std::max(first, size - wanted);  // rows before it are not wanted
    const Piece piece{sequence, tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                      std::max(0, first + count - from)};
    run({&piece, 1},
        [&](int, std::int32_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  }
  return logits;
}

}  // namespace adze::test
