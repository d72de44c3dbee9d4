// What prepare() decides: the kernel of every matrix product, which int8 form of a buffer its readers want, and how
// much scratch that takes. Pure: no memory is allocated here but the lists themselves.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/kernel_table.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::cpu {

// A weight with the kernel chosen for it.
struct BoundMatmul {
  const MatmulKernel* kernel = nullptr;
  ops::WeightRef weight = nullptr;
  ops::WeightRef bias = nullptr;
  int groups() const { return static_cast<int>((weight->rows() + kGroupRows - 1) / kGroupRows); }
};

// One dispatch: a step with its matrix products, in the step's order (parts; gate, up; the one weight).
struct Dispatch {
  int step = 0;
  std::vector<BoundMatmul> matmuls;
  bool quantise_output = false;  // after the step, round its output buffer for the readers
};

struct BufferUse {
  int width = 0, stride = 0;  // floats; stride is width padded to 16
  bool int8_32 = false, int8_256 = false;
  int slot = 0;  // buffers that are never alive together share one
};

// What the mixtures of experts need at most, over all steps. A gathered row is a row of the batch as one expert's
// input.
struct ExpertUse {
  int experts = 0;  // the shared one included; 0: the plan has none
  int slots = 0;    // gathered rows per row
  BufferUse input;  // gathered rows, then what the experts return for them
  BufferUse activated;
  bool spare = false;  // gate and up of two weight types
};

struct CpuSchedule {
  std::vector<Dispatch> dispatches;
  std::vector<BufferUse> buffers;
  std::vector<BufferUse> slots;  // the largest of the buffers that share each
  BufferUse head_input;          // the head's normed rows
  // From this dispatch on nothing is stored any more: only rows whose logits are wanted go on. These buffers hold
  // something then; their wanted rows move together.
  int first_needed = 0;
  std::vector<ops::BufferId> carried;
  int spare_stride = 0;  // floats per row for the second half of a gated pair of two weight types
  ExpertUse experts;
  std::size_t panel_bytes = 0;  // largest panel of any matrix product
  int max_heads = 0, max_padded_head = 0, max_partitions = 0;
  KvFormat kv_format = KvFormat::f16;
  backend::Schedule described;  // for people and digests
};

// The kernels' word for an activation; nothing for one that they do not have.
std::optional<GatedActivation> gated_activation(ops::Activation activation);

// Of all weights that are multiplied with, each counted once.
std::uint64_t weight_bytes(const CpuSchedule& schedule);

Result<CpuSchedule> make_schedule(const ops::Plan& plan, const backend::PrepareOptions& options,
                                  const KernelTable& table);

}  // namespace adze::cpu
