#include "backend/cpu/cpu_attention.hpp"

#include <algorithm>
#include <limits>

namespace adze::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kPartitionPages = kPartition / kPageTokens;

}  // namespace

Attention::Span Attention::visible(const ops::Attend& step, const backend::Row& row) const {
  const int first = step.window == 0 ? 0 : std::max(0, row.position - step.window + 1);
  return {first, row.position, first / kPartition, row.position / kPartition + 1};
}

AttendArgs Attention::basic_args(const ops::Attend& step, int member) const {
  AttendArgs args{};
  args.format = kv_.format();
  args.head_size = step.head_size;
  args.page_tokens = kPageTokens;
  args.scale = step.scale;
  args.softcap = step.softcap;
  args.scores = scratch_.members[static_cast<std::size_t>(member)].scores;
  return args;
}

void Attention::set_partition(const ops::Attend& step, const backend::Batch& batch, int sequence, int kv_head,
                              int partition, int last, AttendArgs& args, const std::byte** keys,
                              const std::byte** values) const {
  args.begin = partition * kPartition;
  args.count = std::min(kPartition, last + 1 - args.begin);
  const auto pages = batch.sequences[static_cast<std::size_t>(sequence)].pages;
  for (int i = 0; i < kPartitionPages && i * kPageTokens < args.count; ++i) {
    const std::int32_t page = pages[static_cast<std::size_t>(args.begin / kPageTokens + i)];
    keys[i] = kv_.keys(page, step.kv_layer, kv_head);
    values[i] = kv_.values(page, step.kv_layer, kv_head);
  }
  args.key_pages = keys;
  args.value_pages = values;
}

void Attention::finish_head(const ops::Attend& step, int head, float* state, float maximum, float denominator,
                            float* out) const {
  const bool has_sink = step.sinks != nullptr;
  const float sink = has_sink ? reinterpret_cast<const float*>(step.sinks->bytes.data())[head] : 0.0f;
  table_.finish(state, maximum, denominator, has_sink, sink, step.head_size);
  std::copy_n(state, step.head_size, out);
}

void Attention::run(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
                    const ActivationBuffer& out, int member) {
  if (static_cast<int>(batch.rows.size()) <= kSplitRows) {
    run_few(step, batch, in, out, member);
  } else {
    run_many(step, batch, in, out, member);
  }
}

void Attention::run_few(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
                        const ActivationBuffer& out, int member) {
  const int rows = static_cast<int>(batch.rows.size()), group = step.heads / step.kv_heads;
  int partitions = 0;
  for (const backend::Row& row : batch.rows) {
    const Span span = visible(step, row);
    partitions += span.end_partition - span.first_partition;
  }
  // All query heads of a KV head together read the cache once; single heads when that would leave threads idle.
  const int together = partitions * step.kv_heads >= 4 * team_.size() ? std::min(group, kMaxQueries) : 1;
  const int units_per_kv_head = (group + together - 1) / together, units = step.kv_heads * units_per_kv_head;
  const Share share = share_of(partitions * units, member, team_.size());
  const std::size_t padded = static_cast<std::size_t>(schedule_.max_padded_head);
  const auto part_index = [&](int row, int head, int partition) {
    return (static_cast<std::size_t>(row) * static_cast<std::size_t>(step.heads) + static_cast<std::size_t>(head)) *
               static_cast<std::size_t>(schedule_.max_partitions) +
           static_cast<std::size_t>(partition);
  };

  int item = 0;
  for (int r = 0; r < rows; ++r) {
    const backend::Row& row = batch.rows[static_cast<std::size_t>(r)];
    const Span span = visible(step, row);
    for (int unit = 0; unit < units; ++unit) {
      const int kv_head = unit / units_per_kv_head;
      const int first_head = kv_head * group + unit % units_per_kv_head * together;
      const int heads = std::min(together, (kv_head + 1) * group - first_head);
      for (int partition = span.first_partition; partition < span.end_partition; ++partition, ++item) {
        if (item < share.begin || item >= share.end) continue;
        const std::byte *keys[kPartitionPages], *values[kPartitionPages];
        AttendArgs args = basic_args(step, member);
        set_partition(step, batch, row.sequence, kv_head, partition, span.last, args, keys, values);
        float maximum[kMaxQueries], denominator[kMaxQueries];
        args.queries = heads;
        args.maximum = maximum;
        args.denominator = denominator;
        for (int h = 0; h < heads; ++h) {
          args.query[h] = in.row(r) + (first_head + h) * step.head_size;
          args.first[h] = span.first;
          args.last[h] = span.last;
          args.out[h] = scratch_.part_out + part_index(r, first_head + h, partition) * padded;
        }
        table_.attend(args);
        for (int h = 0; h < heads; ++h) {
          scratch_.part_maximum[part_index(r, first_head + h, partition)] = maximum[h];
          scratch_.part_denominator[part_index(r, first_head + h, partition)] = denominator[h];
        }
      }
    }
  }
  team_.barrier();

  const Share heads = share_of(rows * step.heads, member, team_.size());
  float* state = scratch_.members[static_cast<std::size_t>(member)].running;
  for (int i = heads.begin; i < heads.end; ++i) {
    const int r = i / step.heads, head = i % step.heads;
    const Span span = visible(step, batch.rows[static_cast<std::size_t>(r)]);
    float maximum = kMinusInfinity, denominator = 0.0f;
    std::fill_n(state, padded, 0.0f);
    for (int partition = span.first_partition; partition < span.end_partition; ++partition) {
      const std::size_t at = part_index(r, head, partition);
      table_.merge(state, &maximum, &denominator, scratch_.part_out + at * padded, scratch_.part_maximum[at],
                   scratch_.part_denominator[at], step.head_size);
    }
    finish_head(step, head, state, maximum, denominator, out.row(r) + head * step.head_size);
  }
}

void Attention::run_many(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
                         const ActivationBuffer& out, int member) {
  const int rows = static_cast<int>(batch.rows.size()), group = step.heads / step.kv_heads;
  const int tile_rows = std::max(1, kMaxQueries / group);
  int tile = 0;
  for (int first = 0; first < rows;) {
    // A tile's rows belong to one sequence.
    const std::int32_t sequence = batch.rows[static_cast<std::size_t>(first)].sequence;
    int count = 1;
    while (count < tile_rows && first + count < rows &&
           batch.rows[static_cast<std::size_t>(first + count)].sequence == sequence)
      ++count;
    for (int kv_head = 0; kv_head < step.kv_heads; ++kv_head, ++tile) {
      // Dealt out in turn: later rows see more positions.
      if (tile % team_.size() == member) run_tile(step, batch, in, out, first, count, kv_head, member);
    }
    first += count;
  }
}

void Attention::run_tile(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
                         const ActivationBuffer& out, int first_row, int rows, int kv_head, int member) {
  const int group = step.heads / step.kv_heads;
  const MemberScratch& scratch = scratch_.members[static_cast<std::size_t>(member)];
  const int padded = padded16(step.head_size);
  const backend::Row& last_row = batch.rows[static_cast<std::size_t>(first_row + rows - 1)];
  const Span whole{visible(step, batch.rows[static_cast<std::size_t>(first_row)]).first, last_row.position,
                   visible(step, batch.rows[static_cast<std::size_t>(first_row)]).first_partition,
                   visible(step, last_row).end_partition};
  // More query heads per KV head than fit one call: several passes.
  for (int from = 0; from < rows * group; from += kMaxQueries) {
    const int queries = std::min(kMaxQueries, rows * group - from);
    float maximum[kMaxQueries], denominator[kMaxQueries], part_maximum[kMaxQueries], part_denominator[kMaxQueries];
    AttendArgs args = basic_args(step, member);
    args.queries = queries;
    args.maximum = part_maximum;
    args.denominator = part_denominator;
    for (int q = 0; q < queries; ++q) {
      const int r = first_row + (from + q) / group, head = kv_head * group + (from + q) % group;
      const Span span = visible(step, batch.rows[static_cast<std::size_t>(r)]);
      args.query[q] = in.row(r) + head * step.head_size;
      args.first[q] = span.first;
      args.last[q] = span.last;
      args.out[q] = scratch.part + q * padded;
      maximum[q] = kMinusInfinity;
      denominator[q] = 0.0f;
    }
    std::fill_n(scratch.running, queries * padded, 0.0f);
    for (int partition = whole.first_partition; partition < whole.end_partition; ++partition) {
      const std::byte *keys[kPartitionPages], *values[kPartitionPages];
      set_partition(step, batch, last_row.sequence, kv_head, partition, whole.last, args, keys, values);
      table_.attend(args);
      for (int q = 0; q < queries; ++q) {
        table_.merge(scratch.running + q * padded, &maximum[q], &denominator[q], scratch.part + q * padded,
                     part_maximum[q], part_denominator[q], step.head_size);
      }
    }
    for (int q = 0; q < queries; ++q) {
      const int r = first_row + (from + q) / group, head = kv_head * group + (from + q) % group;
      finish_head(step, head, scratch.running + q * padded, maximum[q], denominator[q],
                  out.row(r) + head * step.head_size);
    }
  }
}

}  // namespace adze::cpu
