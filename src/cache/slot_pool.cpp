#include "cache/slot_pool.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/check.hpp"

namespace adze::cache {

SlotPool::SlotPool(std::int32_t slots) : capacity_(slots) {
  ADZE_CHECK(slots >= 0, "{} slots", slots);
  for (std::int32_t i = slots; i-- > 0;) free_.push_back(i);  // the lowest index is taken first
}

SlotPool::~SlotPool() {
  ADZE_CHECK(available() == capacity(), "{} slots of state were never released", capacity() - available());
}

StateSlot::StateSlot(StateSlot&& other) noexcept : pool_(other.pool_), index_(std::exchange(other.index_, -1)) {}

StateSlot& StateSlot::operator=(StateSlot&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = other.pool_;
    index_ = std::exchange(other.index_, -1);
  }
  return *this;
}

Status StateSlot::take() {
  if (held() || !needed()) return {};
  if (pool_->free_.empty()) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("all {} slots of recurrent state are in use by other sequences", pool_->capacity()),
                "end other requests");
  }
  index_ = pool_->free_.back();
  pool_->free_.pop_back();
  return {};
}

void StateSlot::release() {
  if (held()) pool_->free_.push_back(std::exchange(index_, -1));
}

}  // namespace adze::cache
