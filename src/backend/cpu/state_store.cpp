#include "backend/cpu/state_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/kernel_table.hpp"
#include "base/check.hpp"

namespace adze::cpu {
namespace {

std::size_t input_count(const ops::StateLayer& layer) {
  return static_cast<std::size_t>(layer.kernel - 1) * input_stride(layer);
}
std::size_t memory_count(const ops::StateLayer& layer) {
  return static_cast<std::size_t>(layer.value_heads) * static_cast<std::size_t>(layer.key_size) * memory_stride(layer);
}

}  // namespace

std::size_t input_stride(const ops::StateLayer& layer) { return static_cast<std::size_t>(padded16(layer.channels)); }
std::size_t memory_stride(const ops::StateLayer& layer) { return static_cast<std::size_t>(padded16(layer.value_size)); }

std::size_t state_slot_bytes(const ops::Plan& plan) {
  std::size_t bytes = 0;
  for (const ops::StateLayer& layer : plan.state_layers) {
    bytes += Arena::rounded(input_count(layer) * sizeof(float)) + Arena::rounded(memory_count(layer) * sizeof(float));
  }
  return bytes;
}

Result<StateStore> StateStore::reserve(const ops::Plan& plan, int slots) {
  StateStore store;
  if (plan.state_layers.empty()) return store;
  store.slots_ = slots;
  store.layers_ = plan.state_layers;
  store.slot_bytes_ = state_slot_bytes(plan);
  store.lengths_.resize(static_cast<std::size_t>(slots));
  ADZE_TRY(store.arena_, Arena::reserve(store.slot_bytes_ * static_cast<std::size_t>(slots)));
  for (int slot = 0; slot < slots; ++slot) {
    for (const ops::StateLayer& layer : store.layers_) {
      auto* inputs = store.arena_.take<float>(input_count(layer));
      store.states_.push_back({inputs, store.arena_.take<float>(memory_count(layer))});
    }
  }
  return store;
}

void StateStore::copy(std::int32_t from, std::int32_t to) {
  ADZE_CHECK(from >= 0 && from < slots_ && to >= 0 && to < slots_ && from != to, "slot {} to {}", from, to);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const State &source = at(from, static_cast<int>(layer)), &target = at(to, static_cast<int>(layer));
    std::copy_n(source.inputs, input_count(layers_[layer]), target.inputs);
    std::copy_n(source.memory, memory_count(layers_[layer]), target.memory);
  }
  set_length(to, length(from));
}

Status StateStore::move_on(const backend::Batch& batch) {
  if (empty()) return {};
  in_batch_.assign(static_cast<std::size_t>(slots_), false);
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    const backend::Row& row = batch.rows[r];
    if (r > 0 && batch.rows[r - 1].sequence == row.sequence) continue;
    const std::int32_t slot = batch.sequences[static_cast<std::size_t>(row.sequence)].slot;
    if (slot < 0 || slot >= slots_ || in_batch_[static_cast<std::size_t>(slot)]) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("slot {} of recurrent state is taken, or not one of {}", slot, slots_));
    }
    in_batch_[static_cast<std::size_t>(slot)] = true;
    if (row.position != 0 && row.position != length(slot)) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("position {} cannot follow the recurrent state of slot {}, which has seen {}",
                              row.position, slot, length(slot)));
    }
  }
  for (const backend::Row& row : batch.rows) {
    set_length(batch.sequences[static_cast<std::size_t>(row.sequence)].slot, row.position + 1);
  }
  return {};
}

}  // namespace adze::cpu
