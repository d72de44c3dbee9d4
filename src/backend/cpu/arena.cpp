#include "backend/cpu/arena.hpp"

#include <sys/mman.h>

#include <utility>

#include "base/check.hpp"

namespace adze::cpu {

Result<Arena> Arena::reserve(std::size_t bytes, bool huge_pages) {
  Arena arena;
  if (bytes == 0) return arena;
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return fail(ErrorCode::out_of_memory, fmt::format("cannot reserve {} bytes of memory", bytes),
                "close other programs");
  }
  if (huge_pages) ::madvise(base, bytes, MADV_HUGEPAGE);
  arena.base_ = static_cast<std::byte*>(base);
  arena.size_ = bytes;
  return arena;
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(used_, other.used_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

std::byte* Arena::take_bytes(std::size_t bytes) {
  bytes = rounded(bytes);
  ADZE_CHECK(bytes <= size_ - used_, "memory of {} bytes, {} used, {} more asked for", size_, used_, bytes);
  return base_ + std::exchange(used_, used_ + bytes);
}

}  // namespace adze::cpu
