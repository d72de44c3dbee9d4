// Who holds which slot of recurrent state. The bytes belong to the backend; a slot here is an index into them, held by
// one sequence at a time. Not thread-safe: the engine's thread owns it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"

namespace adze::cache {

class SlotPool {
 public:
  explicit SlotPool(std::int32_t slots);  // 0: the model has no recurrent layers
  // As for pages: destroying a pool with slots in use is our bug.
  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  std::int32_t capacity() const { return capacity_; }
  std::int32_t available() const { return static_cast<std::int32_t>(free_.size()); }

 private:
  friend class StateSlot;
  std::int32_t capacity_;
  std::vector<std::int32_t> free_;  // a stack
};

// The slot of one sequence, or none yet. Movable; gives the slot back when destroyed.
class StateSlot {
 public:
  // The pool outlives the slot.
  explicit StateSlot(SlotPool& pool) : pool_(&pool) {}
  StateSlot(StateSlot&& other) noexcept;
  StateSlot& operator=(StateSlot&& other) noexcept;
  StateSlot(const StateSlot&) = delete;
  StateSlot& operator=(const StateSlot&) = delete;
  ~StateSlot() { release(); }

  bool needed() const { return pool_->capacity() > 0; }
  bool held() const { return index_ >= 0; }
  std::int32_t index() const { return index_; }  // what the backend calls it; -1: none

  // Holds a slot from here on, if the model needs one. Errors: out_of_memory, and then it holds none.
  Status take();
  void release();

 private:
  SlotPool* pool_;
  std::int32_t index_ = -1;
};

}  // namespace adze::cache
