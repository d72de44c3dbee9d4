#include "engine/scripted_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "sample/random.hpp"

namespace adze::engine {

using backend::PageGroup;

ScriptedBackend::ScriptedBackend(ScriptedOptions options, Model model)
    : options_(options), model_(std::move(model)), states_(static_cast<std::size_t>(options.slots)) {
  ADZE_CHECK((options.window > 0) == (options.sliding_pages > 0), "a window of {}", options.window);
  for (const PageGroup group : {PageGroup::full, PageGroup::sliding}) {
    cells(group).assign(static_cast<std::size_t>(pages_of(group)) * backend::kPageTokens, -1);
  }
  schedule_.backend = "scripted";
  schedule_.numeric_class = "scripted";
}

std::int32_t ScriptedBackend::pages_of(PageGroup group) const {
  return group == PageGroup::full ? options_.pages : options_.sliding_pages;
}

backend::MemoryUse ScriptedBackend::memory() const {
  const std::uint64_t page = backend::kPageTokens * sizeof(std::int32_t);
  const std::uint64_t slot = options_.slots > 0 ? static_cast<std::uint64_t>(options_.context) * 4 : 0;
  return {.bytes_per_page = options_.pages > 0 ? page : 0,
          .bytes_per_sliding_page = options_.sliding_pages > 0 ? page : 0,
          .kv_bytes_reserved = page * static_cast<std::uint64_t>(options_.pages + options_.sliding_pages),
          .bytes_per_slot = slot,
          .state_bytes_reserved = slot * static_cast<std::uint64_t>(options_.slots)};
}

void ScriptedBackend::copy_page(PageGroup group, std::int32_t from, std::int32_t to) {
  ADZE_CHECK(from >= 0 && from < pages_of(group) && to >= 0 && to < pages_of(group), "page {} to {}", from, to);
  const auto at = [&](std::int32_t page) { return cells(group).begin() + std::ptrdiff_t{page} * backend::kPageTokens; };
  std::copy_n(at(from), backend::kPageTokens, at(to));
  ++copies_;
}

void ScriptedBackend::copy_state(std::int32_t from, std::int32_t to) {
  ADZE_CHECK(from >= 0 && from < options_.slots && to >= 0 && to < options_.slots, "slot {} to {}", from, to);
  states_[static_cast<std::size_t>(to)] = {.seen = states_[static_cast<std::size_t>(from)].seen, .log = {}};
  ++copies_;
}

std::int32_t& ScriptedBackend::cell(PageGroup group, const backend::SequencePages& sequence, std::int32_t position) {
  const auto page = static_cast<std::size_t>(position / backend::kPageTokens);
  const std::span<const std::int32_t> table = group == PageGroup::full ? sequence.full : sequence.sliding;
  ADZE_CHECK(page < table.size(), "position {} is outside its {} pages", position, table.size());
  const std::int32_t index = table[page];
  ADZE_CHECK(index >= 0 && index < pages_of(group), "page {} of {}", index, pages_of(group));
  return cells(group)[static_cast<std::size_t>(index) * backend::kPageTokens +
                      static_cast<std::size_t>(position % backend::kPageTokens)];
}

// What a layer of the group sees at position `last`.
void ScriptedBackend::read(PageGroup group, const backend::SequencePages& sequence, std::int32_t last,
                           std::vector<std::int32_t>& history) {
  history.clear();
  const std::int64_t first = group == PageGroup::full ? 0 : std::max<std::int64_t>(last - options_.window + 1, 0);
  for (auto position = static_cast<std::int32_t>(first); position <= last; ++position) {
    history.push_back(cell(group, sequence, position));
    ADZE_CHECK(history.back() >= 0, "position {} was never computed", position);
  }
}

// The rows that turned out to belong to the text. Without slots there is no state, as in a model of attention alone.
void ScriptedBackend::replay(const backend::Batch& batch) {
  if (states_.empty()) return;
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    if (r > 0 && batch.rows[r - 1].sequence == batch.rows[r].sequence) continue;
    const backend::SequencePages& sequence = batch.sequences[static_cast<std::size_t>(batch.rows[r].sequence)];
    ADZE_CHECK(sequence.slot >= 0 && sequence.slot < options_.slots, "slot {} of {}", sequence.slot, options_.slots);
    State& state = states_[static_cast<std::size_t>(sequence.slot)];
    if (batch.rows[r].position == 0) state = {};
    ADZE_CHECK(sequence.replay <= std::ssize(state.log), "{} of {} rows replayed", sequence.replay, state.log.size());
    state.seen.insert(state.seen.end(), state.log.begin(), state.log.begin() + sequence.replay);
    state.log.clear();
    ADZE_CHECK(std::ssize(state.seen) == batch.rows[r].position, "position {} after a state of {}",
               batch.rows[r].position, state.seen.size());
  }
}

// `index`: of the row among its sequence's in the batch.
void ScriptedBackend::move_state(const backend::SequencePages& sequence, const backend::Row& row, int index) {
  if (states_.empty()) return;
  State& state = states_[static_cast<std::size_t>(sequence.slot)];
  (index < sequence.certain ? state.seen : state.log).push_back(row.token);
  ADZE_CHECK(std::ssize(state.log) <= limits::kMaxDraft, "{} rows in the log", state.log.size());
}

// What the state was made from, uncertain rows included.
std::vector<std::int32_t> ScriptedBackend::text_of(const backend::SequencePages& sequence) const {
  const State& state = states_[static_cast<std::size_t>(sequence.slot)];
  std::vector<std::int32_t> text = state.seen;
  text.insert(text.end(), state.log.begin(), state.log.end());
  return text;
}

void ScriptedBackend::check_state(const backend::SequencePages& sequence, std::span<const std::int32_t> history) const {
  if (states_.empty()) return;
  const std::vector<std::int32_t> text = text_of(sequence);
  ADZE_CHECK(history.size() <= text.size() && std::ranges::equal(history, std::span(text).last(history.size())),
             "slot {} holds another text", sequence.slot);
}

Status ScriptedBackend::run(const backend::Batch& batch) {
  ADZE_CHECK(static_cast<int>(batch.rows.size()) <= options_.max_batch_rows, "{} rows", batch.rows.size());
  if (failure_) return tl::unexpected(*std::exchange(failure_, std::nullopt));
  ++runs_;
  rows_run_ += std::ssize(batch.rows);
  logits_.clear();
  replay(batch);
  std::vector<std::int32_t> history, window;
  int index = 0;
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    const backend::Row& row = batch.rows[r];
    index = r > 0 && batch.rows[r - 1].sequence == row.sequence ? index + 1 : 0;
    ADZE_CHECK(row.token >= 0 && row.token < options_.vocabulary, "token {}", row.token);
    ADZE_CHECK(row.position < options_.context, "position {} of {}", row.position, options_.context);
    const backend::SequencePages& sequence = batch.sequences[static_cast<std::size_t>(row.sequence)];
    if (options_.pages > 0) cell(PageGroup::full, sequence, row.position) = row.token;
    if (options_.sliding_pages > 0) cell(PageGroup::sliding, sequence, row.position) = row.token;
    move_state(sequence, row, index);
    // Every row reads, as in a real model: what it may not see any more must not be needed either.
    if (options_.sliding_pages > 0) read(PageGroup::sliding, sequence, row.position, window);
    if (!row.wants_logits) continue;
    if (options_.pages > 0) {
      read(PageGroup::full, sequence, row.position, history);
      ADZE_CHECK(std::ranges::equal(window, std::span(history).last(window.size())), "the groups hold other texts");
    } else if (options_.sliding_pages > 0) {
      history = window;
    } else {
      history = text_of(sequence);
    }
    check_state(sequence, history);
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
