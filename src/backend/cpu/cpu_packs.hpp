// Weights in the packed layout (kernels/packed.inl.h): made from the file's, group by group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/cpu/arena.hpp"
#include "backend/cpu/cpu_schedule.hpp"
#include "backend/cpu/pack_store.hpp"
#include "backend/packs.hpp"

namespace adze::cpu {

// Group `group` of all of the weight's slices * groups, 64-byte aligned, group_bytes long; `scratch` is what
// pack_scratch_bytes() says, 64-byte aligned. Any thread.
void pack_group(const PackedWeight& weight, int group, std::byte* out, std::byte* scratch);
std::size_t pack_scratch_bytes(const PackedWeight& weight);

// Packs every weight that can be packed, into memory of its own, and points the schedule at the result. Error:
// out_of_memory.
Result<Arena> pack_in_memory(const CpuSchedule& schedule);

// The packed weights of a schedule from a pack file, as soon as there is one. The schedule must outlive it.
class FilePacks {
 public:
  FilePacks(const CpuSchedule& schedule, backend::PackOptions options);

  // Before each pass of so many rows, by the thread that runs it: points the schedule at packed weights that have come,
  // and gives back what is not read any more of the model's file, unless products go on reading it (--compute f32, or a
  // profile that wants it so). The bytes that are packed.
  std::uint64_t before_pass(int rows);
  // A row of an embedding, which is read from the model's file whatever is packed. Any thread, in a pass.
  void dequantise_row(const tensor::TensorView& table, std::int64_t row, float* out) const;
  PackStore& store() { return *store_; }
  const PackStore& store() const { return *store_; }

 private:
  void release_file();
  bool all_read_packed() const;

  const CpuSchedule& schedule_;
  const std::function<void()> release_;
  const std::function<bool(const std::byte*, std::span<std::byte>)> read_;
  const std::unique_ptr<PackStore> store_;
  bool in_use_ = false;
  int rows_since_release_ = 0;
};

}  // namespace adze::cpu
