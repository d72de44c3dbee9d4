// AttentionPrep by heads: what a stacked projection holds for one query head, key head or value head of a row is
// independent of all others, unless one norm goes over all heads.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/cpu_matmul.hpp"
#include "backend/cpu/kv_store.hpp"

namespace adze::cpu {

class HeadPrep {
 public:
  HeadPrep(const ops::Plan& plan, const KernelTable& table, const KvStore& kv, const Scratch& scratch)
      : plan_(plan), table_(table), kv_(kv), scratch_(scratch) {}

  // Query heads (each with its gate, if there is one), then key heads, then value heads; keys that serve as values are
  // one unit for both. The columns of a stacked row that a unit reads.
  static int units(const ops::AttentionPrep& step) { return step.heads + step.stored_parts() * step.kv_heads; }
  static Columns columns(const ops::AttentionPrep& step, int unit);

  // One unit of one row: writes q and its gate, or appends to the cache. `gate` is null for a step without one.
  void run(const ops::AttentionPrep& step, int unit, int row, const backend::Batch& batch, const ActivationBuffer& in,
           const ActivationBuffer& out, const ActivationBuffer* gate) const;

  // All of a row, for a step whose norms go over all heads; the row of `in` is changed.
  void run_row(const ops::AttentionPrep& step, int row, const backend::Batch& batch, const ActivationBuffer& in,
               const ActivationBuffer& out, const ActivationBuffer* gate) const;

 private:
  void store_key(const ops::AttentionPrep& step, int kv_head, int row, const backend::Batch& batch,
                 const float* in) const;
  void store_value(const ops::AttentionPrep& step, int kv_head, int row, const backend::Batch& batch,
                   const float* in) const;
  void prepare(const ops::AttentionPrep& step, const ops::NormSpec* norm, const float* in, int row, float* out) const;

  const ops::Plan& plan_;
  const KernelTable& table_;
  const KvStore& kv_;
  const Scratch& scratch_;
};

}  // namespace adze::cpu
