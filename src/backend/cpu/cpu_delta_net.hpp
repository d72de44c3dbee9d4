// How the steps of Gated DeltaNet are shared among threads. A member takes heads of the convolution, or columns of
// value heads' states, through all rows of a sequence: the rows are serial, heads and columns are independent. Who
// completes a value head of a sequence takes it through DeltaOut.
#pragma once

#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_matmul.hpp"
#include "backend/cpu/cpu_rounding.hpp"
#include "backend/cpu/cpu_scratch.hpp"
#include "backend/cpu/state_store.hpp"
#include "backend/cpu/thread_team.hpp"

namespace adze::cpu {

class DeltaNet {
 public:
  // Packs the weights of the plan's convolutions. Error: out_of_memory.
  static Result<DeltaNet> create(const ops::Plan& plan, const KernelTable& table);
  static std::size_t packed_bytes(const ops::Plan& plan);

  // The slots of a batch's sequences are valid and distinct.
  //
  // DeltaPrep in units: heads of q, of k, of v, then the gates; a unit reads these columns of a row of `in`.
  static int prep_units(const ops::DeltaPrep& step) { return 2 * step.heads.key_heads + step.heads.value_heads + 1; }
  static Columns prep_columns(const ops::DeltaPrep& step, int unit);
  void prep(const ops::DeltaPrep& step, int unit, const backend::Batch& batch, const StateStore& states,
            const ActivationBuffer& in, const ActivationBuffer& out) const;

  // What DeltaOut does to a head once it is scanned.
  struct Finish {
    const ops::DeltaOut& step;
    const ActivationBuffer &in, &gate, &out;
    const Rounding& rounding;
  };
  // Called by every member of the team; what they write is complete after the next barrier. `finish` may be null.
  void scan(const ops::DeltaScan& step, const backend::Batch& batch, const StateStore& states,
            const ActivationBuffer& in, const ActivationBuffer& out, const Finish* finish, const Countdown& heads,
            int member, int members) const;
  // One head of all rows.
  void out(const Finish& finish, int head, const backend::Batch& batch) const;

 private:
  struct Run {  // rows of one sequence
    int first, count;
    std::int32_t slot;
    bool fresh;  // starts at position 0
  };
  struct Convolution {
    const float* weights = nullptr;  // [kernel][stride]
    std::size_t stride = 0;
    int kernel = 0;
  };
  DeltaNet() = default;
  static Run run_at(const backend::Batch& batch, int first);
  void convolve_head(const Convolution& convolution, const Run& run, float* past, int channel, int size,
                     const ActivationBuffer& in, const ActivationBuffer& out) const;
  void finish_head(const Finish& finish, int head, const RowSet& rows) const;
  void gates(const ops::DeltaPrep& step, const Run& run, const ActivationBuffer& in, const ActivationBuffer& out) const;

  const KernelTable* table_ = nullptr;
  Arena arena_;
  std::vector<Convolution> convolutions_;  // per state layer
};

}  // namespace adze::cpu
