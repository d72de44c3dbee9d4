// The private memory of a prepared plan: its buffers, their int8 forms, panels and attention scratch.
#pragma once

#include <span>
#include <vector>

#include "backend/cpu/arena.hpp"
#include "backend/cpu/countdown.hpp"
#include "backend/cpu/cpu_schedule.hpp"

namespace adze::cpu {

struct ActivationBuffer {
  float* floats = nullptr;  // [rows][stride]
  std::size_t stride = 0;
  int width = 0;
  QuantisedRows int8_32{}, int8_256{};  // null quants: nobody reads that form
  Countdown blocks{};                   // that are rounded to one of them
  float* row(int r) const { return floats + static_cast<std::size_t>(r) * stride; }
};

// Rows of a buffer without what pads them, [rows][width], copied to `to`.
std::span<const float> copy_rows(const ActivationBuffer& from, int first, int rows, std::vector<float>& to);

struct MemberScratch {
  std::byte* panels[2] = {};  // gate and up
  float* scores = nullptr;    // [kMaxQueries][kPartition]
  float* unpacked = nullptr;  // [kPageTokens][padded head]
  float* running = nullptr;   // [kMaxQueries][padded head]
  float* part = nullptr;      // [kMaxQueries][padded head]
};

// A mixture's rows, gathered by expert: those of expert e stand together, in the order of the batch.
struct ExpertScratch {
  float* logits = nullptr;  // [rows][logits_stride], the shared expert's gate last
  std::size_t logits_stride = 0;
  std::int32_t* starts = nullptr;  // [experts + 1]: the gathered rows of expert e are starts[e] .. starts[e + 1]
  std::int32_t* next = nullptr;    // [experts]
  std::int32_t* rows = nullptr;    // [gathered]: row of the batch
  std::int32_t* places = nullptr;  // [rows][slots]: gathered row of each slot
  ActivationBuffer input, activated;
  float* spare = nullptr;  // [gathered][activated.stride]
};

// What the threads of one dispatch complete together.
struct Countdowns {
  Countdown rows;   // two for each dispatch side by side
  Countdown heads;  // of a projection; of a row's attention; of a sequence's states
};

struct Scratch {
  Arena arena;
  Countdowns countdowns;
  std::vector<ActivationBuffer> buffers;
  ActivationBuffer head_input;
  float* spare = nullptr;  // [rows][spare_stride]
  ExpertScratch experts;
  std::vector<MemberScratch> members;
  // Partial attention results of up to kSplitRows rows: [row][head][partition].
  float* part_out = nullptr;  // each [padded head]
  float* part_maximum = nullptr;
  float* part_denominator = nullptr;
  std::vector<float*> rope_cosine, rope_sine;  // per rope of the plan: [rows][dims / 2]
};

std::size_t scratch_bytes(const CpuSchedule& schedule, const ops::Plan& plan, int rows, int threads);
Result<Scratch> make_scratch(const CpuSchedule& schedule, const ops::Plan& plan, int rows, int threads);

}  // namespace adze::cpu
