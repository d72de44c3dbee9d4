// The memory behind recurrent states: for every slot, what each recurrent layer keeps of one sequence, and a log of
// rows that may yet turn out to belong to it (docs/design/0018). Which slot belongs to whom is the cache room's affair;
// here a slot is an index. Backed by the system as slots, and rows of their logs, are first used.
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
// With its log.
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

  // The log of a slot: rows of convolution inputs, input_stride() floats apart, and of decays and betas as
  // DeltaNet::scan reads them, gate_stride() apart. The rest of what a row does to a state follows from its inputs.
  float* logged_inputs(std::int32_t slot, int layer, int row) const {
    return at(slot, layer).logged_inputs + static_cast<std::size_t>(row) * at(slot, layer).input_stride;
  }
  float* logged_gates(std::int32_t slot, int layer, int row) const {
    return at(slot, layer).logged_gates + static_cast<std::size_t>(row) * at(slot, layer).gate_stride;
  }
  // Scratch of a slot for the rows that a batch replays, of one layer at a time: [k | v | decay | beta] of each.
  float* replayed(std::int32_t slot, int row) const {
    return replayed_[static_cast<std::size_t>(slot)] + static_cast<std::size_t>(row) * replay_stride_;
  }
  std::size_t replay_stride() const { return replay_stride_; }

  // Checks that every sequence with rows goes on where its slot and the rows that it replays stand, then notes where it
  // will stand. Error: invalid_argument, and nothing is noted.
  Status move_on(const backend::Batch& batch);

  // The committed state; the log of `to` is empty afterwards. Both are slots, and not the same (ADZE_CHECK).
  void copy(std::int32_t from, std::int32_t to);

  // Rows of its sequence that a slot has seen for certain.
  std::int32_t length(std::int32_t slot) const { return places_[static_cast<std::size_t>(slot)].length; }

 private:
  struct State {
    float *inputs, *memory, *logged_inputs, *logged_gates;
    std::size_t input_stride, gate_stride;
  };
  struct Place {
    std::int32_t length = 0;  // of what the committed state has seen
    std::int32_t logged = 0;  // rows that the log holds
    bool in_batch = false;
  };
  Status check(const backend::SequencePages& sequence, std::int32_t position, std::int64_t rows);
  const State& at(std::int32_t slot, int layer) const {
    return states_[static_cast<std::size_t>(slot) * layers_.size() + static_cast<std::size_t>(layer)];
  }

  int slots_ = 0;
  std::size_t slot_bytes_ = 0;
  Arena arena_;
  std::vector<ops::StateLayer> layers_;
  std::vector<State> states_;  // [slots][layers]
  std::vector<float*> replayed_;
  std::size_t replay_stride_ = 0;
  std::vector<Place> places_;  // [slots]
};

}  // namespace adze::cpu
