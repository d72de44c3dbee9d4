#include "backend/cpu/cpu_packs.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_matmul.hpp"

namespace adze::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t rounded_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

std::size_t pack_scratch_bytes(const PackedWeight& weight) {
  return weight.kernel->panel_bytes(static_cast<int>(weight.weight->columns()), weight.weight->row_stride());
}

void pack_group(const PackedWeight& weight, int group, std::byte* out, std::byte* scratch) {
  const std::int64_t rows = weight.weight->rows() / weight.slices, first = group / weight.groups * rows;
  const BoundMatmul whole{weight.kernel, weight.weight, nullptr, nullptr};
  MatmulArgs a = matmul_args(whole, {}, 0, nullptr, 0, false, scratch);
  a.weights = weight.weight->row(first);
  a.groups = weight.weight->groups_from(first);
  a.rows = static_cast<int>(rows);
  weight.kernel->pack(a, group % weight.groups, out);
}

void PackMemory::Unmap::operator()(std::byte* bytes) const { ::munmap(bytes, size); }

Result<PackMemory> pack_in_memory(const CpuSchedule& schedule) {
  std::size_t size = kHugePage, scratch_size = 64;
  for (const auto& weight : schedule.packed) {
    size += rounded_up(weight->size(), 64);
    scratch_size = std::max(scratch_size, pack_scratch_bytes(*weight) + 64);
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::out_of_memory, fmt::format("no memory for {} bytes of packed weights", size));
  }
  ::madvise(memory, size, MADV_HUGEPAGE);
  PackMemory packs(static_cast<std::byte*>(memory), size);
  std::vector<std::byte> scratch(scratch_size);
  std::byte* const aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
  std::byte* at = packs.data();
  at += rounded_up(reinterpret_cast<std::uintptr_t>(at), kHugePage) - reinterpret_cast<std::uintptr_t>(at);
  for (const auto& weight : schedule.packed) {
    for (int group = 0; group < weight->slices * weight->groups; ++group) {
      pack_group(*weight, group, at + static_cast<std::size_t>(group) * weight->group_bytes, aligned);
    }
    weight->bytes = at;
    at += rounded_up(weight->size(), 64);
  }
  return packs;
}

}  // namespace adze::cpu
