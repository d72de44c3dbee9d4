// How an Attend step is shared among threads. Few rows (decode): the work is (row, heads, partition), partial results
// meet in scratch and are merged in order of position. Many rows (prefill): a member takes tiles of rows of one KV head
// through all partitions and merges as it goes, in the same order: the same bits.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/cpu_scratch.hpp"
#include "backend/cpu/kv_store.hpp"
#include "backend/cpu/thread_team.hpp"

namespace adze::cpu {

class Attention {
 public:
  Attention(const KernelTable& table, const KvStore& kv, const Scratch& scratch, const CpuSchedule& schedule,
            ThreadTeam& team)
      : table_(table), kv_(kv), scratch_(scratch), schedule_(schedule), team_(team) {}

  // Called by every member. The output rows are complete after the next barrier.
  void run(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
           const ActivationBuffer& out, int member);

 private:
  struct Span {  // visible positions of a row, and the partitions that hold them
    int first, last, first_partition, end_partition;
  };
  Span visible(const ops::Attend& step, const backend::Row& row) const;
  void run_few(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
               const ActivationBuffer& out, int member);
  void run_many(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
                const ActivationBuffer& out, int member);
  void run_tile(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
                const ActivationBuffer& out, int first_row, int rows, int kv_head, int member);
  // Fills pages and the position range of a partition that ends no later than `last`.
  void set_partition(const ops::Attend& step, const backend::Batch& batch, int sequence, int kv_head, int partition,
                     int last, AttendArgs& args, const std::byte** keys, const std::byte** values) const;
  AttendArgs basic_args(const ops::Attend& step, int member) const;
  void finish_head(const ops::Attend& step, int head, float* state, float maximum, float denominator, float* out) const;

  const KernelTable& table_;
  const KvStore& kv_;
  const Scratch& scratch_;
  const CpuSchedule& schedule_;
  ThreadTeam& team_;
};

}  // namespace adze::cpu
