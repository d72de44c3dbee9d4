// How the steps of Gated DeltaNet are shared among threads. A member takes heads of the convolution, or columns of
// value heads' states, through all rows of a sequence: the rows are serial, heads and columns are independent. Who
// completes a value head of a sequence takes it through DeltaOut.
//
// Rows of a sequence come in three parts. Those replayed from its slot's log stand before the batch's own; they move
// the state and give nothing. The certain ones move it as well. The others read a state that they leave as it is, and
// go to the log. A row gives the same bits in each part.
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
  // Packs the weights of the plan's convolutions, and makes room for what the members of a team scan. Error:
  // out_of_memory.
  static Result<DeltaNet> create(const ops::Plan& plan, const KernelTable& table, int members);
  static std::size_t bytes(const ops::Plan& plan, int members);

  // What a batch says of its sequences' slots has been checked (StateStore::move_on).
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
    bool fresh;           // starts at position 0
    int replay, certain;  // rows of the log before; of the rows, those that move the state
    int uncertain() const { return count - certain; }
  };
  struct Convolution {
    const float* weights = nullptr;  // [kernel][stride]
    std::size_t stride = 0;
    int kernel = 0;
  };
  DeltaNet() = default;
  static Run run_at(const backend::Batch& batch, int first);
  void convolve_head(const ops::DeltaPrep& step, int unit, const Run& run, const StateStore& states,
                     const ActivationBuffer& in, const ActivationBuffer& out) const;
  void finish_head(const Finish& finish, int head, const RowSet& rows) const;
  void gates(const ops::DeltaPrep& step, const Run& run, const StateStore& states, const ActivationBuffer& in,
             const ActivationBuffer& out) const;
  void scan_rows(DeltaScanArgs args, const Run& run, int member) const;

  const KernelTable* table_ = nullptr;
  Arena arena_;
  std::vector<Convolution> convolutions_;  // per state layer
  struct MemberBlock {
    float* state;     // [key_size][columns], of uncertain rows
    float* replayed;  // [kMaxDraft][columns], what replayed rows would give
  };
  std::vector<MemberBlock> blocks_;  // per member
};

}  // namespace adze::cpu
