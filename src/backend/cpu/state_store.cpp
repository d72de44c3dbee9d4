#include "backend/cpu/state_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/kernel_table.hpp"
#include "base/check.hpp"
#include "base/limits.hpp"

namespace adze::cpu {
namespace {

std::size_t input_count(const ops::StateLayer& layer) {
  return static_cast<std::size_t>(layer.kernel - 1) * input_stride(layer);
}
std::size_t memory_count(const ops::StateLayer& layer) {
  return static_cast<std::size_t>(layer.value_heads) * static_cast<std::size_t>(layer.key_size) * memory_stride(layer);
}

constexpr auto kLogged = static_cast<std::size_t>(limits::kMaxDraft);

std::size_t gate_stride(const ops::StateLayer& layer) {
  return static_cast<std::size_t>(padded16(2 * layer.value_heads));
}
// Of [k | v | decay | beta]: all channels of the convolution but those of q, which are as many as those of k.
std::size_t replayed_width(const ops::StateLayer& layer) {
  const int values = layer.value_heads * layer.value_size;
  return static_cast<std::size_t>(padded16(values + (layer.channels - values) / 2 + 2 * layer.value_heads));
}
std::size_t replayed_stride(const ops::Plan& plan) {
  std::size_t stride = 0;
  for (const ops::StateLayer& layer : plan.state_layers) stride = std::max(stride, replayed_width(layer));
  return stride;
}
template <class T>
std::size_t rounded(std::size_t count) {
  return Arena::rounded(count * sizeof(T));
}

}  // namespace

std::size_t input_stride(const ops::StateLayer& layer) { return static_cast<std::size_t>(padded16(layer.channels)); }
std::size_t memory_stride(const ops::StateLayer& layer) { return static_cast<std::size_t>(padded16(layer.value_size)); }

std::size_t state_slot_bytes(const ops::Plan& plan) {
  std::size_t bytes = rounded<float>(kLogged * replayed_stride(plan));
  for (const ops::StateLayer& layer : plan.state_layers) {
    bytes += rounded<float>(input_count(layer)) + rounded<float>(memory_count(layer)) +
             rounded<float>(kLogged * input_stride(layer)) + rounded<float>(kLogged * gate_stride(layer));
  }
  return bytes;
}

Result<StateStore> StateStore::reserve(const ops::Plan& plan, int slots) {
  StateStore store;
  if (plan.state_layers.empty()) return store;
  store.slots_ = slots;
  store.layers_ = plan.state_layers;
  store.slot_bytes_ = state_slot_bytes(plan);
  store.replay_stride_ = replayed_stride(plan);
  store.places_.resize(static_cast<std::size_t>(slots));
  ADZE_TRY(store.arena_, Arena::reserve(store.slot_bytes_ * static_cast<std::size_t>(slots)));
  for (int slot = 0; slot < slots; ++slot) {
    for (const ops::StateLayer& layer : store.layers_) {
      auto* inputs = store.arena_.take<float>(input_count(layer));
      store.states_.push_back({.inputs = inputs,
                               .memory = store.arena_.take<float>(memory_count(layer)),
                               .logged_inputs = nullptr,
                               .logged_gates = nullptr,
                               .input_stride = input_stride(layer),
                               .gate_stride = gate_stride(layer)});
    }
  }
  // Logs behind all states: a slot that is kept as a checkpoint never touches its own.
  for (int slot = 0; slot < slots; ++slot) {
    for (std::size_t layer = 0; layer < store.layers_.size(); ++layer) {
      State& state = store.states_[static_cast<std::size_t>(slot) * store.layers_.size() + layer];
      state.logged_inputs = store.arena_.take<float>(kLogged * state.input_stride);
      state.logged_gates = store.arena_.take<float>(kLogged * state.gate_stride);
    }
    store.replayed_.push_back(store.arena_.take<float>(kLogged * store.replay_stride_));
  }
  return store;
}

void StateStore::copy(std::int32_t from, std::int32_t to) {
  ADZE_CHECK(from >= 0 && from < slots_ && to >= 0 && to < slots_ && from != to, "slot {} to {} of {}", from, to,
             slots_);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const State &source = at(from, static_cast<int>(layer)), &target = at(to, static_cast<int>(layer));
    std::copy_n(source.inputs, input_count(layers_[layer]), target.inputs);
    std::copy_n(source.memory, memory_count(layers_[layer]), target.memory);
  }
  places_[static_cast<std::size_t>(to)] = {.length = length(from)};
}

Status StateStore::check(const backend::SequencePages& sequence, std::int32_t position, std::int64_t rows) {
  const std::int32_t slot = sequence.slot;
  if (slot < 0 || slot >= slots_ || places_[static_cast<std::size_t>(slot)].in_batch) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("slot {} of recurrent state is taken, or not one of {}", slot, slots_));
  }
  Place& place = places_[static_cast<std::size_t>(slot)];
  place.in_batch = true;
  const std::int32_t logged = position == 0 ? 0 : place.logged;
  if (sequence.replay < 0 || sequence.replay > logged) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("{} rows to replay before position {}, but the log of slot {} has {} that can come before it",
                    sequence.replay, position, slot, logged));
  }
  if (position != 0 && position != place.length + sequence.replay) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("position {} cannot follow the recurrent state of slot {}, which has seen {} with the rows "
                            "that are replayed",
                            position, slot, place.length + sequence.replay));
  }
  if (sequence.certain < 0 || rows - sequence.certain > limits::kMaxDraft) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} rows of a sequence of which {} are certain: at most {} may be uncertain", rows,
                            sequence.certain, limits::kMaxDraft));
  }
  return {};
}

Status StateStore::move_on(const backend::Batch& batch) {
  if (empty()) return {};
  for (Place& place : places_) place.in_batch = false;
  const auto for_runs = [&](auto&& f) -> Status {  // f(sequence, first position, rows)
    for (std::size_t first = 0, end = 0; first < batch.rows.size(); first = end) {
      const backend::Row& row = batch.rows[first];
      while (end < batch.rows.size() && batch.rows[end].sequence == row.sequence) ++end;
      ADZE_TRY_STATUS(f(batch.sequences[static_cast<std::size_t>(row.sequence)], row.position,
                        static_cast<std::int64_t>(end - first)));
    }
    return {};
  };
  ADZE_TRY_STATUS(for_runs([&](const backend::SequencePages& sequence, std::int32_t position, std::int64_t rows) {
    return check(sequence, position, rows);
  }));
  return for_runs([&](const backend::SequencePages& sequence, std::int32_t position, std::int64_t rows) -> Status {
    const auto certain = static_cast<std::int32_t>(std::min<std::int64_t>(rows, sequence.certain));
    Place& place = places_[static_cast<std::size_t>(sequence.slot)];
    place.length = position + certain;
    place.logged = static_cast<std::int32_t>(rows) - certain;
    return {};
  });
}

}  // namespace adze::cpu
