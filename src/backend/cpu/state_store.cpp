#include "backend/cpu/state_store.hpp"

#include "backend/cpu/kernel_table.hpp"

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

}  // namespace adze::cpu
