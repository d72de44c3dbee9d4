// Weights in the packed layout (kernels/packed.inl.h): made from the file's, group by group.
#pragma once

#include <cstddef>
#include <memory>

#include "backend/cpu/cpu_schedule.hpp"

namespace adze::cpu {

// Group `group` of all of the weight's slices * groups, 64-byte aligned, group_bytes long; `scratch` is what
// pack_scratch_bytes() says, 64-byte aligned. Any thread.
void pack_group(const PackedWeight& weight, int group, std::byte* out, std::byte* scratch);
std::size_t pack_scratch_bytes(const PackedWeight& weight);

// All packed weights of a schedule in anonymous memory, in huge pages where the system has them.
class PackMemory {
 public:
  PackMemory() = default;
  PackMemory(std::byte* bytes, std::size_t size) : bytes_(bytes, Unmap{size}) {}
  std::byte* data() const { return bytes_.get(); }

 private:
  struct Unmap {
    std::size_t size;
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Unmap> bytes_;
};

// Packs every weight that can be packed and points the schedule at the result. Error: out_of_memory.
Result<PackMemory> pack_in_memory(const CpuSchedule& schedule);

}  // namespace adze::cpu
