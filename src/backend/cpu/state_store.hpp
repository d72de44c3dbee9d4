// The memory behind recurrent states: for every slot, what each recurrent layer keeps of one sequence. Which slot
// belongs to whom is the cache room's affair; here a slot is an index. Backed by the system as slots are first used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/arena.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::cpu {

// Floats between the rows of a layer's convolution inputs; and those of a key in its memory, with their padding.
std::size_t input_stride(const ops::StateLayer& layer);
std::size_t memory_stride(const ops::StateLayer& layer);
std::size_t state_slot_bytes(const ops::Plan& plan);

class StateStore {
 public:
  // No memory for a plan without recurrent layers. Error: out_of_memory.
  static Result<StateStore> reserve(const ops::Plan& plan, int slots);

  bool empty() const { return layers_.empty(); }
  int slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  // [kernel - 1][input_stride], the oldest first.
  float* inputs(std::int32_t slot, int layer) const { return at(slot, layer).inputs; }
  // [value_heads][key_size * memory_stride], as DeltaNet::scan cuts it; the padding is zeros.
  float* memory(std::int32_t slot, int layer) const { return at(slot, layer).memory; }

  // Checks that every sequence with rows goes on where its slot stands, then notes where it will stand. Error:
  // invalid_argument, and nothing is noted.
  Status move_on(const backend::Batch& batch);

  void copy(std::int32_t from, std::int32_t to);

  // Rows of its sequence that a slot has seen.
  std::int32_t length(std::int32_t slot) const { return lengths_[static_cast<std::size_t>(slot)]; }
  void set_length(std::int32_t slot, std::int32_t length) { lengths_[static_cast<std::size_t>(slot)] = length; }

 private:
  struct State {
    float *inputs, *memory;
  };
  const State& at(std::int32_t slot, int layer) const {
    return states_[static_cast<std::size_t>(slot) * layers_.size() + static_cast<std::size_t>(layer)];
  }

  int slots_ = 0;
  std::size_t slot_bytes_ = 0;
  Arena arena_;
  std::vector<ops::StateLayer> layers_;
  std::vector<State> states_;  // [slots][layers]
  std::vector<std::int32_t> lengths_;
  std::vector<bool> in_batch_;  // [slots]
};

}  // namespace adze::cpu
