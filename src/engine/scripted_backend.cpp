#include "engine/scripted_backend.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/check.hpp"
#include "sample/random.hpp"

namespace adze::engine {

ScriptedBackend::ScriptedBackend(ScriptedOptions options, Model model)
    : options_(options),
      model_(std::move(model)),
      cells_(static_cast<std::size_t>(options.pages) * backend::kPageTokens, -1),
      states_(static_cast<std::size_t>(options.slots)) {
  schedule_.backend = "scripted";
  schedule_.numeric_class = "scripted";
}

backend::MemoryUse ScriptedBackend::memory() const {
  const std::uint64_t page = backend::kPageTokens * sizeof(std::int32_t);
  const std::uint64_t slot = options_.slots > 0 ? static_cast<std::uint64_t>(options_.context) * 4 : 0;
  return {.bytes_per_page = page,
          .kv_bytes_reserved = page * static_cast<std::uint64_t>(options_.pages),
          .bytes_per_slot = slot,
          .state_bytes_reserved = slot * static_cast<std::uint64_t>(options_.slots)};
}

std::int32_t& ScriptedBackend::cell(const backend::SequencePages& sequence, std::int32_t position) {
  const auto page = static_cast<std::size_t>(position / backend::kPageTokens);
  ADZE_CHECK(page < sequence.pages.size(), "position {} is outside its {} pages", position, sequence.pages.size());
  const std::int32_t index = sequence.pages[page];
  ADZE_CHECK(index >= 0 && index < options_.pages, "page {} of {}", index, options_.pages);
  return cells_[static_cast<std::size_t>(index) * backend::kPageTokens +
                static_cast<std::size_t>(position % backend::kPageTokens)];
}

// Without slots there is no state, as in a model of attention alone.
void ScriptedBackend::move_state(const backend::SequencePages& sequence, const backend::Row& row) {
  if (states_.empty()) return;
  ADZE_CHECK(sequence.slot >= 0 && sequence.slot < options_.slots, "slot {} of {}", sequence.slot, options_.slots);
  std::vector<std::int32_t>& state = states_[static_cast<std::size_t>(sequence.slot)];
  if (row.position == 0) state.clear();
  ADZE_CHECK(std::ssize(state) == row.position, "position {} after a state of {}", row.position, state.size());
  state.push_back(row.token);
}

Status ScriptedBackend::run(const backend::Batch& batch) {
  ADZE_CHECK(static_cast<int>(batch.rows.size()) <= options_.max_batch_rows, "{} rows", batch.rows.size());
  if (failure_) return tl::unexpected(*std::exchange(failure_, std::nullopt));
  ++runs_;
  rows_run_ += std::ssize(batch.rows);
  logits_.clear();
  std::vector<std::int32_t> history;
  for (const backend::Row& row : batch.rows) {
    ADZE_CHECK(row.token >= 0 && row.token < options_.vocabulary, "token {}", row.token);
    ADZE_CHECK(row.position < options_.context, "position {} of {}", row.position, options_.context);
    const backend::SequencePages& sequence = batch.sequences[static_cast<std::size_t>(row.sequence)];
    cell(sequence, row.position) = row.token;
    move_state(sequence, row);
    if (!row.wants_logits) continue;
    history.clear();
    for (std::int32_t position = 0; position <= row.position; ++position) {
      history.push_back(cell(sequence, position));
      ADZE_CHECK(history.back() >= 0, "position {} was never computed", position);
    }
    if (!states_.empty()) {
      ADZE_CHECK(history == states_[static_cast<std::size_t>(sequence.slot)], "slot {} holds another text",
                 sequence.slot);
    }
    logits_.emplace_back(static_cast<std::size_t>(options_.vocabulary));
    model_(history, logits_.back());
  }
  return {};
}

std::span<const float> ScriptedBackend::logits(int wanted) const {
  return logits_.at(static_cast<std::size_t>(wanted));
}

ScriptedBackend::Model ScriptedBackend::play(std::vector<std::int32_t> ids, std::int64_t prompt_length,
                                             std::int32_t end) {
  return [ids = std::move(ids), prompt_length, end](std::span<const std::int32_t> history, std::span<float> logits) {
    const std::int64_t at = std::ssize(history) - prompt_length;
    const bool scripted = at >= 0 && at < std::ssize(ids);
    logits[static_cast<std::size_t>(scripted ? ids[static_cast<std::size_t>(at)] : end)] = 50.0f;
  };
}

ScriptedBackend::Model ScriptedBackend::noise(std::uint64_t seed) {
  return [seed](std::span<const std::int32_t> history, std::span<float> logits) {
    std::uint64_t key = seed;
    for (const std::int32_t id : history) key = sample::mix64(key + static_cast<std::uint64_t>(id) + 1);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(sample::mix64(key + i * sample::kGolden) >> 40) * 0x1p-21f - 4.0f;
    }
  };
}

}  // namespace adze::engine
