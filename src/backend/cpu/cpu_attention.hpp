// How an Attend step is shared among threads. Few rows (decode): the work is (row, heads, partition), partial results
// meet in scratch, and whoever completes some heads of a row merges theirs, in order of position. Many rows (prefill):
// a member takes tiles of rows of one KV head through all partitions and merges as it goes, in the same order: the same
// bits.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/cpu_rounding.hpp"
#include "backend/cpu/cpu_scratch.hpp"
#include "backend/cpu/kv_store.hpp"
#include "backend/cpu/thread_team.hpp"

namespace adze::cpu {

class Attention {
 public:
  Attention(const KernelTable& table, const KvStore& kv, const Scratch& scratch, const CpuSchedule& schedule,
            const Rounding& rounding, const ThreadTeam& team)
      : table_(table), kv_(kv), scratch_(scratch), schedule_(schedule), rounding_(rounding), team_(team) {}

  // Whether whoever completes some heads of a row takes them further at once. Rows of many would be rounded side by
  // side by several threads into the same cache lines, which costs more than meeting: prompts at 0.8 times the speed.
  static bool completes_heads(int rows) { return rows <= kSplitRows; }

  // Called by every member. The output rows are complete after the next barrier: gated and rounded for few rows, else
  // only attended. `gate` is null for a step without one.
  void run(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
           const ActivationBuffer* gate, const ActivationBuffer& out, int member) const;

  // Gates and rounds the columns of some heads.
  void finish(const ops::Attend& step, const RowSet& rows, int first_head, int heads, const ActivationBuffer* gate,
              const ActivationBuffer& out) const;
  // The same for all columns of row `row` of `rows`.
  void finish_row(int row, int rows, const ActivationBuffer* gate, const ActivationBuffer& out) const;

 private:
  struct Span {  // visible positions of a row, and the partitions that hold them
    int first, last, first_partition, end_partition;
  };
  Span visible(const ops::Attend& step, const backend::Row& row) const;
  struct Work {
    const ops::Attend& step;
    const backend::Batch& batch;
    const ActivationBuffer& in;
    const ActivationBuffer* gate;
    const ActivationBuffer& out;
  };
  void run_few(const Work& work, int member) const;
  void run_partition(const Work& work, int row, int first_head, int heads, int partition, int member) const;
  void merge_heads(const Work& work, int row, int first_head, int heads, int member) const;
  std::size_t part_index(const ops::Attend& step, int row, int head, int partition) const;
  static int tile_end(const ops::Attend& step, const backend::Batch& batch, int first);
  void run_many(const Work& work, int member) const;
  void run_tile(const Work& work, int first_row, int rows, int kv_head, int member) const;
  // Fills the position range of a partition, of which rows see `seen`, and the pages that hold some of that.
  void set_partition(const ops::Attend& step, const backend::Batch& batch, int sequence, int kv_head, int partition,
                     const Span& seen, AttendArgs& args, const std::byte** keys, const std::byte** values) const;
  AttendArgs basic_args(const ops::Attend& step, int member) const;
  void finish_head(const ops::Attend& step, int head, float* state, float maximum, float denominator, float* out) const;

  const KernelTable& table_;
  const KvStore& kv_;
  const Scratch& scratch_;
  const CpuSchedule& schedule_;
  const Rounding& rounding_;
  const ThreadTeam& team_;
};

}  // namespace adze::cpu
