#include "text/jinja/heap.hpp"

#include "base/limits.hpp"
#include "text/jinja/error.hpp"

namespace adze::text::jinja {

void raise(std::string_view type, std::string message) {
  throw Failure{ErrorCode::template_error, std::string(type), std::move(message), 0};
}

void raise_limit(std::string message) { throw Failure{ErrorCode::limit_exceeded, {}, std::move(message), 0}; }

std::uint64_t Heap::default_step_limit() { return limits::kTemplateMaxSteps; }

void Heap::charge(std::uint64_t bytes) {
  if (bytes > limits::kTemplateMaxMemoryBytes - used_)
    raise_limit(
        fmt::format("the chat template needs more than {} MiB of memory", limits::kTemplateMaxMemoryBytes >> 20));
  used_ += bytes;
}

void Heap::out_of_steps() const { raise_limit(fmt::format("the chat template takes more than {} steps", step_limit_)); }

void Heap::enter() {
  if (++depth_ > limits::kTemplateMaxRecursion) {
    --depth_;
    raise_limit(fmt::format("the chat template recurses more than {} levels deep", limits::kTemplateMaxRecursion));
  }
}

void Heap::adopt(Object* object) {
  object->heap = this;
  object->next = objects_;
  if (objects_ != nullptr) objects_->previous = object;
  objects_ = object;
}

void Heap::bury(Object* object) {
  if (object->previous != nullptr) object->previous->next = object->next;
  if (object->next != nullptr) object->next->previous = object->previous;
  if (objects_ == object) objects_ = object->next;
  object->next = graveyard_;
  graveyard_ = object;
  if (digging_) return;  // reached from a destructor below: the loop there goes on
  digging_ = true;
  while (graveyard_ != nullptr) {
    Object* dead = graveyard_;
    graveyard_ = dead->next;
    refund(dead->charged);
    delete dead;
  }
  digging_ = false;
}

Heap::~Heap() {
  // Pin everything, so that dropping the values inside frees nothing that is still to be visited.
  for (Object* o = objects_; o != nullptr; o = o->next) ++o->refs;
  for (Object* o = objects_; o != nullptr; o = o->next) o->drop();
  while (objects_ != nullptr) {
    Object* next = objects_->next;
    delete objects_;
    objects_ = next;
  }
}

}  // namespace adze::text::jinja
