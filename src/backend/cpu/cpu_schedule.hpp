// What prepare() decides: the kernel of every matrix product, which steps a dispatch covers, which int8 form of a
// buffer its readers want, and how much scratch that takes. Pure: no memory is allocated here but the lists themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_fusion.hpp"
#include "backend/cpu/cpu_tuning.hpp"
#include "backend/cpu/kernel_table.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::cpu {

// A weight whose products may read it in the packed layout: `slices` matrices (experts) of `groups` groups each, one
// behind the other.
struct PackedWeight {
  const MatmulKernel* kernel = nullptr;
  ops::WeightRef weight = nullptr;
  int slices = 1, groups = 0;
  std::size_t group_bytes = 0;
  // Null: not packed (yet), and products read the file's. Changes between passes only.
  const std::byte* bytes = nullptr;
  std::uint64_t size() const {
    return std::uint64_t{group_bytes} * static_cast<std::uint64_t>(slices) * static_cast<std::uint64_t>(groups);
  }
  const std::byte* slice(std::int64_t index) const {
    return bytes == nullptr ? nullptr
                            : bytes + group_bytes * static_cast<std::size_t>(groups) * static_cast<std::size_t>(index);
  }
};

// A weight with the kernel chosen for it.
struct BoundMatmul {
  const MatmulKernel* kernel = nullptr;
  ops::WeightRef weight = nullptr;
  ops::WeightRef bias = nullptr;
  const PackedWeight* packed = nullptr;     // null: these products never read packed weights
  const ProductTuning* tuning = &kUntuned;  // of the step's shape
  int groups() const { return static_cast<int>((weight->rows() + kGroupRows - 1) / kGroupRows); }
};

struct BufferUse {
  int width = 0, stride = 0;  // floats; stride is width padded to 16
  bool int8_32 = false, int8_256 = false;
  // Sets of rows that are completed, and their blocks rounded, apart from each other: so many, or each row.
  int row_sets = 1;
  bool each_row = false;
  int slot = 0;  // buffers that are never alive together share one
};

// What the mixtures of experts need at most, over all steps. A gathered row is a row of the batch as one expert's
// input.
struct ExpertUse {
  int experts = 0;  // the shared one included; 0: the plan has none
  int slots = 0;    // gathered rows per row
  BufferUse input;  // gathered rows, then what the experts return for them
  BufferUse activated;
};

// Counters of what several threads complete together, the most that any dispatch needs.
struct CountdownUse {
  int prepared_heads = 0;  // of a stacked projection
  int value_heads = 0;     // of recurrent layers, for each sequence of a batch
  int lanes = 1;           // dispatches side by side
};

// Blocks of a row in either int8 form, each counted.
constexpr std::size_t block_units(int width) { return static_cast<std::size_t>(width / 32 + width / 256); }

struct CpuSchedule {
  std::vector<Dispatch> dispatches;                   // fused
  std::vector<Dispatch> single;                       // every stage by itself, for an observer
  std::vector<std::vector<BoundMatmul>> products;     // of each step, in its order (parts; gate, up; the one weight)
  std::vector<std::unique_ptr<PackedWeight>> packed;  // each weight that can be packed, once
  std::vector<BufferUse> buffers;
  std::vector<BufferUse> slots;  // the largest of the buffers that share each
  BufferUse head_input;          // the head's normed rows
  // From this dispatch on nothing is stored any more: only rows whose logits are wanted go on. These buffers hold
  // something then; their wanted rows move together.
  std::size_t first_needed = 0;
  std::vector<ops::BufferId> carried;
  int spare_stride = 0;  // floats per row for the second half of a gated pair that is multiplied one by one
  ExpertUse experts;
  CountdownUse countdowns;
  std::size_t panel_bytes = 0;  // largest panel of any matrix product
  int max_heads = 0, max_padded_head = 0, max_partitions = 0;
  KvFormat kv_format = KvFormat::f16;
  std::unique_ptr<Tuning> tuning;  // changes between passes only
  backend::Schedule described;     // for people and digests
};

// The kernels' word for an activation; nothing for one that they do not have.
std::optional<GatedActivation> gated_activation(ops::Activation activation);

// Of all weights that are multiplied with, each counted once.
std::uint64_t weight_bytes(const CpuSchedule& schedule);

// Of all weights in the packed layout.
std::uint64_t packed_size(const CpuSchedule& schedule);

// `options.threads` is the number of the team's members, not 0.
Result<CpuSchedule> make_schedule(const ops::Plan& plan, const backend::PrepareOptions& options,
                                  const KernelTable& table);

}  // namespace adze::cpu
