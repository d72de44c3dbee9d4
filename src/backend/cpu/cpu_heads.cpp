#include "backend/cpu/cpu_heads.hpp"

#include <algorithm>

#include "backend/cpu/cpu_norm.hpp"
#include "base/limits.hpp"

namespace adze::cpu {
namespace {

using Stored = ops::AttentionPrep::Stored;

// Where a row's key or value goes.
struct Place {
  std::int32_t page;
  int slot;
};
Place place_of(const KvStore& kv, int layer, const backend::Batch& batch, int row) {
  const backend::Row& r = batch.rows[static_cast<std::size_t>(row)];
  const auto pages = kv.table(batch.sequences[static_cast<std::size_t>(r.sequence)], layer);
  return {pages[static_cast<std::size_t>(r.position / kPageTokens)], r.position % kPageTokens};
}

}  // namespace

Columns HeadPrep::columns(const ops::AttentionPrep& step, int unit) {
  const int query = step.head_size * (step.gate < 0 ? 1 : 2);  // with its gate
  if (unit < step.heads) return {unit * query, (unit + 1) * query};
  const int begin = step.heads * query + (unit - step.heads) * step.head_size;
  return {begin, begin + step.head_size};
}

void HeadPrep::run(const ops::AttentionPrep& step, int unit, int row, const backend::Batch& batch,
                   const ActivationBuffer& in, const ActivationBuffer& out, const ActivationBuffer* gate) const {
  const float* head = in.row(row) + columns(step, unit).begin;
  if (unit < step.heads) {
    float* q = out.row(row) + unit * step.head_size;
    if (gate != nullptr) std::copy_n(head + step.head_size, step.head_size, gate->row(row) + unit * step.head_size);
    prepare(step, step.has_q_norm ? &step.q_norm : nullptr, head, row, q);
    if (step.position_scale != 0.0f) {
      table_.scale(q, ops::position_scale(step, batch.rows[static_cast<std::size_t>(row)].position), step.head_size);
    }
    return;
  }
  const int kv_head = (unit - step.heads) % step.kv_heads;
  const bool is_key = unit < step.heads + step.kv_heads;
  if (is_key) store_key(step, kv_head, row, batch, head);
  if (!is_key || step.stored == Stored::key_as_value) store_value(step, kv_head, row, batch, head);
}

void HeadPrep::run_row(const ops::AttentionPrep& step, int row, const backend::Batch& batch, const ActivationBuffer& in,
                       const ActivationBuffer& out, const ActivationBuffer* gate) const {
  float* queries = in.row(row);
  float* keys = queries + step.heads * step.head_size;
  if (step.has_q_norm) norm_row(table_, step.q_norm, queries, step.heads * step.head_size, queries);
  if (step.has_k_norm) norm_row(table_, step.k_norm, keys, step.kv_heads * step.head_size, keys);
  ops::AttentionPrep normed = step;
  normed.has_q_norm = normed.has_k_norm = false;
  for (int unit = 0; unit < units(step); ++unit) run(normed, unit, row, batch, in, out, gate);
}

void HeadPrep::store_key(const ops::AttentionPrep& step, int kv_head, int row, const backend::Batch& batch,
                         const float* in) const {
  float k[limits::kMaxHeadSize];
  prepare(step, step.has_k_norm ? &step.k_norm : nullptr, in, row, k);
  const Place place = place_of(kv_, step.kv_layer, batch, row);
  table_.append_key(kv_.format(), k, step.head_size, place.slot, kv_.keys(place.page, step.kv_layer, kv_head));
}

void HeadPrep::store_value(const ops::AttentionPrep& step, int kv_head, int row, const backend::Batch& batch,
                           const float* in) const {
  float v[limits::kMaxHeadSize];
  if (step.has_v_norm) {
    norm_row(table_, step.v_norm, in, step.head_size, v);
    in = v;
  }
  const Place place = place_of(kv_, step.kv_layer, batch, row);
  table_.append_value(kv_.format(), in, step.head_size, place.slot, kv_.values(place.page, step.kv_layer, kv_head));
}

void HeadPrep::prepare(const ops::AttentionPrep& step, const ops::NormSpec* norm, const float* in, int row,
                       float* out) const {
  if (norm != nullptr) {
    norm_row(table_, *norm, in, step.head_size, out);
  } else {
    std::copy_n(in, step.head_size, out);
  }
  if (step.rope < 0) return;
  const ops::RopeSpec& rope = plan_.ropes[static_cast<std::size_t>(step.rope)];
  const std::size_t at = static_cast<std::size_t>(row) * rope.inverse_frequency.size();
  table_.rope(out, {scratch_.rope_cosine[static_cast<std::size_t>(step.rope)] + at,
                    scratch_.rope_sine[static_cast<std::size_t>(step.rope)] + at, rope.dims(), rope.interleaved});
}

}  // namespace adze::cpu
