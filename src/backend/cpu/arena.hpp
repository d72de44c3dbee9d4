// Zeroed memory: one anonymous map, backed by the system as it is touched, handed out in 64-byte steps.
#pragma once

#include <cstddef>

#include "base/result.hpp"

namespace adze::cpu {

class Arena {
 public:
  // Error: out_of_memory. Huge pages: asked for, where the system has them.
  static Result<Arena> reserve(std::size_t bytes, bool huge_pages = false);
  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  // `count` values of T, zeroed, aligned to 64 bytes. What was asked for in all must fit what was reserved
  // (ADZE_CHECK).
  template <class T>
  T* take(std::size_t count) {
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T)));
  }
  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  std::byte* take_bytes(std::size_t bytes);
  std::byte* base_ = nullptr;
  std::size_t size_ = 0, used_ = 0;
};

}  // namespace adze::cpu
