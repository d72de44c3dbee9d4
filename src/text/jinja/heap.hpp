// What one render may use: memory, steps and depth, each bounded by base/limits.hpp; and the owner of its objects.
//
// Objects are counted by reference so that memory comes back early, and owned by the heap so that cycles (a namespace
// that holds itself) end with the render. Freeing is iterative: a list nested a million deep is no deep recursion.
// Not thread-safe; one heap per render.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace adze::text::jinja {

class Heap;

enum class Kind : std::uint8_t {
  missing,  // a variable without a value; templates never see it
  undefined,
  none,
  boolean,
  integer,
  real,
  big,  // an integer beyond 64 bits
  string,
  list,
  tuple,
  dict,
  view,  // dict.keys(), .values(), .items()
  range,
  name_space,
  iterator,
  function,
  method,
  macro,
  loop,
  cycler,
  joiner,
  frame,  // a scope's variables; templates never see it
};

struct Object {
  explicit Object(Kind k) : kind(k) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  // Lets go of every value it holds; called once, when the heap closes.
  virtual void drop() {}

  Kind kind;
  std::uint32_t refs = 0;
  std::uint64_t charged = 0;  // bytes
  Heap* heap = nullptr;
  Object* previous = nullptr;
  Object* next = nullptr;
};

class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  template <class T, class... Args>
  T* make(Args&&... args) {
    charge(sizeof(T) + kObjectOverhead);
    auto owned = std::make_unique<T>(std::forward<Args>(args)...);
    owned->charged = sizeof(T) + kObjectOverhead;
    adopt(owned.get());
    return owned.release();
  }

  // Counts `bytes` more (or fewer) as held by an object. Raises when the render's memory is used up.
  void charge(Object& object, std::uint64_t bytes) {
    charge(bytes);
    object.charged += bytes;
  }
  void refund(Object& object, std::uint64_t bytes) {
    refund(bytes);
    object.charged -= bytes;
  }
  void charge(std::uint64_t bytes);
  void refund(std::uint64_t bytes) { used_ -= bytes; }

  // Counts work done; about 10-50 ns each. Raises when the render has used its steps.
  void step(std::uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ > step_limit_) [[unlikely]]
      out_of_steps();
  }
  // Work that grows with text: copying, searching.
  void step_bytes(std::uint64_t bytes) { step(1 + bytes / 64); }

  // The last reference to an object is gone.
  void bury(Object* object);

 private:
  friend class Depth;
  static constexpr std::uint64_t kObjectOverhead = 16;  // the allocator's own
  void adopt(Object* object);
  [[noreturn]] void out_of_steps() const;
  void enter();

  Object* objects_ = nullptr;
  Object* graveyard_ = nullptr;
  bool digging_ = false;
  std::uint64_t used_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t step_limit_ = default_step_limit();
  int depth_ = 0;
  static std::uint64_t default_step_limit();
};

// Memory that a computation uses for a while, counted for the life of the object.
class Loan {
 public:
  Loan(Heap& heap, std::uint64_t bytes) : heap_(heap), bytes_(bytes) { heap_.charge(bytes_); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  ~Loan() { heap_.refund(bytes_); }

 private:
  Heap& heap_;
  std::uint64_t bytes_;
};

// One level of recursion over values or syntax, for the life of the object.
class Depth {
 public:
  explicit Depth(Heap& heap) : heap_(heap) { heap_.enter(); }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --heap_.depth_; }

 private:
  Heap& heap_;
};

}  // namespace adze::text::jinja
