// How the steps of Gated DeltaNet are shared among threads. A member takes heads of the convolution, or columns of
// value heads' states, through all rows of a sequence: the rows are serial, heads and columns are independent.
#pragma once

#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_scratch.hpp"
#include "backend/cpu/state_store.hpp"
#include "backend/cpu/thread_team.hpp"

namespace adze::cpu {

class DeltaNet {
 public:
  // Packs the weights of the plan's convolutions. Error: out_of_memory.
  static Result<DeltaNet> create(const ops::Plan& plan, const KernelTable& table);
  static std::size_t packed_bytes(const ops::Plan& plan);

  // Called by every member of the team; what they write is complete after the next barrier. The slots of a batch's
  // sequences are valid and distinct.
  void prep(const ops::DeltaPrep& step, const backend::Batch& batch, const StateStore& states,
            const ActivationBuffer& in, const ActivationBuffer& out, int member, int members) const;
  void scan(const ops::DeltaScan& step, const backend::Batch& batch, const StateStore& states,
            const ActivationBuffer& in, const ActivationBuffer& out, int member, int members) const;
  void out(const ops::DeltaOut& step, int rows, const ActivationBuffer& in, const ActivationBuffer& gate,
           const ActivationBuffer& out, int member, int members) const;

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
  void gates(const ops::DeltaPrep& step, const Run& run, const ActivationBuffer& in, const ActivationBuffer& out) const;

  const KernelTable* table_ = nullptr;
  Arena arena_;
  std::vector<Convolution> convolutions_;  // per state layer
};

}  // namespace adze::cpu
