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
  args.scale = step.scale;
  args.softcap = step.softcap;
  const MemberScratch& scratch = scratch_.members[static_cast<std::size_t>(member)];
  args.scores = scratch.scores;
  args.unpacked = scratch.unpacked;
  return args;
}

void Attention::set_partition(const ops::Attend& step, const backend::Batch& batch, int sequence, int kv_head,
                              int partition, const Span& seen, AttendArgs& args, const std::byte** keys,
                              const std::byte** values) const {
  args.begin = partition * kPartition;
  args.count = std::min(kPartition, seen.last + 1 - args.begin);
  args.first_page = std::max(seen.first - args.begin, 0) / kPageTokens;
  const auto pages = kv_.table(batch.sequences[static_cast<std::size_t>(sequence)], step.kv_layer);
  for (int i = args.first_page; i < kPartitionPages && i * kPageTokens < args.count; ++i) {
    const std::int32_t page = pages[static_cast<std::size_t>(args.begin / kPageTokens + i)];
    keys[i] = kv_.keys(page, step.kv_layer, kv_head);
    values[i] = kv_.values(page, step.kv_layer, kv_head);
  }
  args.key_pages = keys;
  args.value_pages = values;
  const auto next = static_cast<std::size_t>((partition + 1) * kPartitionPages);
  args.next_keys =
      args.begin + kPartition <= seen.last ? kv_.keys(pages[next], step.kv_layer, kv_head) : keys[args.first_page];
}

void Attention::finish_head(const ops::Attend& step, int head, float* state, float maximum, float denominator,
                            float* out) const {
  const bool has_sink = step.sinks != nullptr;
  const float sink = has_sink ? reinterpret_cast<const float*>(step.sinks->bytes.data())[head] : 0.0f;
  table_.finish(state, maximum, denominator, has_sink, sink, step.head_size);
  std::copy_n(state, step.head_size, out);
}

void Attention::run(const ops::Attend& step, const backend::Batch& batch, const ActivationBuffer& in,
                    const ActivationBuffer* gate, const ActivationBuffer& out, int member) const {
  const Work work{step, batch, in, gate, out};
  if (completes_heads(static_cast<int>(batch.rows.size()))) {
    run_few(work, member);
  } else {
    run_many(work, member);
  }
}

void Attention::finish(const ops::Attend& step, const RowSet& rows, int first_head, int heads,
                       const ActivationBuffer* gate, const ActivationBuffer& out) const {
  const int begin = first_head * step.head_size, width = heads * step.head_size;
  for (int r = rows.first; gate != nullptr && r < rows.first + rows.count; ++r) {
    table_.multiply_sigmoid(out.row(r) + begin, gate->row(r) + begin, width);
  }
  rounding_.columns(out, rows, begin, begin + width);
}

void Attention::finish_row(int row, int rows, const ActivationBuffer* gate, const ActivationBuffer& out) const {
  if (gate != nullptr) table_.multiply_sigmoid(out.row(row), gate->row(row), out.width);
  rounding_.row(out, row, rows);
}

// --- few rows --------------------------------------------------------------------------------------------------------

void Attention::run_few(const Work& work, int member) const {
  const ops::Attend& step = work.step;
  const int rows = static_cast<int>(work.batch.rows.size()), group = step.heads / step.kv_heads;
  int partitions = 0;
  for (const backend::Row& row : work.batch.rows) {
    const Span span = visible(step, row);
    partitions += span.end_partition - span.first_partition;
  }
  // All query heads of a KV head together turn its keys and values into floats once, which costs about as much as a
  // head; single heads where together they would leave threads idle for longer than that saves.
  const auto longest = [&](int heads) {
    const int units = step.kv_heads * ((group + heads - 1) / heads);
    return (partitions * units + team_.size() - 1) / team_.size() * (1 + heads);
  };
  const int most = std::min(group, kMaxQueries), together = longest(most) <= longest(1) ? most : 1;
  const int units_per_kv_head = (group + together - 1) / together, units = step.kv_heads * units_per_kv_head;
  const Share share = share_of(partitions * units, member, team_.size());

  int item = 0;  // the first partition of a row's unit
  for (int r = 0; r < rows; ++r) {
    const Span span = visible(step, work.batch.rows[static_cast<std::size_t>(r)]);
    const int count = span.end_partition - span.first_partition;
    for (int unit = 0; unit < units; ++unit, item += count) {
      const int begin = std::max(share.begin - item, 0), end = std::min(share.end - item, count);
      if (begin >= end) continue;
      const int kv_head = unit / units_per_kv_head;
      const int first_head = kv_head * group + unit % units_per_kv_head * together;
      const int heads = std::min(together, (kv_head + 1) * group - first_head);
      for (int i = begin; i < end; ++i) run_partition(work, r, first_head, heads, span.first_partition + i, member);
      const auto counter = static_cast<std::size_t>(r * units + unit);
      if (!scratch_.countdowns.heads.complete(counter, end - begin, count)) continue;
      merge_heads(work, r, first_head, heads, member);
      finish(step, {r, 1, rows, static_cast<std::size_t>(r) * block_units(work.out.width)}, first_head, heads,
             work.gate, work.out);
    }
  }
}

std::size_t Attention::part_index(const ops::Attend& step, int row, int head, int partition) const {
  return (static_cast<std::size_t>(row) * static_cast<std::size_t>(step.heads) + static_cast<std::size_t>(head)) *
             static_cast<std::size_t>(schedule_.max_partitions) +
         static_cast<std::size_t>(partition);
}

void Attention::run_partition(const Work& work, int row, int first_head, int heads, int partition, int member) const {
  const ops::Attend& step = work.step;
  const backend::Row& of = work.batch.rows[static_cast<std::size_t>(row)];
  const Span span = visible(step, of);
  const std::byte *keys[kPartitionPages], *values[kPartitionPages];
  AttendArgs args = basic_args(step, member);
  set_partition(step, work.batch, of.sequence, first_head / (step.heads / step.kv_heads), partition, span, args, keys,
                values);
  float maximum[kMaxQueries], denominator[kMaxQueries];
  args.queries = heads;
  args.maximum = maximum;
  args.denominator = denominator;
  for (int h = 0; h < heads; ++h) {
    args.query[h] = work.in.row(row) + (first_head + h) * step.head_size;
    args.first[h] = span.first;
    args.last[h] = span.last;
    args.out[h] = scratch_.part_out + part_index(step, row, first_head + h, partition) *
                                          static_cast<std::size_t>(schedule_.max_padded_head);
  }
  table_.attend(args);
  for (int h = 0; h < heads; ++h) {
    scratch_.part_maximum[part_index(step, row, first_head + h, partition)] = maximum[h];
    scratch_.part_denominator[part_index(step, row, first_head + h, partition)] = denominator[h];
  }
}

void Attention::merge_heads(const Work& work, int row, int first_head, int heads, int member) const {
  const ops::Attend& step = work.step;
  const Span span = visible(step, work.batch.rows[static_cast<std::size_t>(row)]);
  const auto padded = static_cast<std::size_t>(schedule_.max_padded_head);
  float* state = scratch_.members[static_cast<std::size_t>(member)].running;
  for (int head = first_head; head < first_head + heads; ++head) {
    float maximum = kMinusInfinity, denominator = 0.0f;
    std::fill_n(state, padded, 0.0f);
    for (int partition = span.first_partition; partition < span.end_partition; ++partition) {
      const std::size_t at = part_index(step, row, head, partition);
      table_.merge(state, &maximum, &denominator, scratch_.part_out + at * padded, scratch_.part_maximum[at],
                   scratch_.part_denominator[at], step.head_size);
    }
    finish_head(step, head, state, maximum, denominator, work.out.row(row) + head * step.head_size);
  }
}

// --- many rows -------------------------------------------------------------------------------------------------------

// Rows of one sequence side by side, as many as one call takes.
int Attention::tile_end(const ops::Attend& step, const backend::Batch& batch, int first) {
  const auto sequence = [&](int r) { return batch.rows[static_cast<std::size_t>(r)].sequence; };
  const int most = std::max(1, kMaxQueries / (step.heads / step.kv_heads));
  int end = first + 1;
  while (end < first + most && end < static_cast<int>(batch.rows.size()) && sequence(end) == sequence(first)) ++end;
  return end;
}

// The items (tile, KV head) in order, cut where each member has its part of all scores: later rows see more positions,
// and sequences of a batch have very different lengths.
void Attention::run_many(const Work& work, int member) const {
  const ops::Attend& step = work.step;
  const int rows = static_cast<int>(work.batch.rows.size());
  const auto cost = [&](int first, int end) {
    const Span from = visible(step, work.batch.rows[static_cast<std::size_t>(first)]);
    return std::int64_t{end - first} * (work.batch.rows[static_cast<std::size_t>(end - 1)].position + 1 - from.first);
  };
  std::int64_t all = 0;
  for (int first = 0, end = 0; first < rows; first = end) {
    end = tile_end(step, work.batch, first);
    all += step.kv_heads * cost(first, end);
  }
  std::int64_t before = 0;
  for (int first = 0, end = 0; first < rows; first = end) {
    end = tile_end(step, work.batch, first);
    const std::int64_t each = cost(first, end);
    for (int kv_head = 0; kv_head < step.kv_heads; ++kv_head, before += each) {
      if ((2 * before + each) * team_.size() / (2 * all) == member) run_tile(work, first, end - first, kv_head, member);
    }
  }
}

void Attention::run_tile(const Work& work, int first_row, int rows, int kv_head, int member) const {
  const ops::Attend& step = work.step;
  const backend::Batch& batch = work.batch;
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
      args.query[q] = work.in.row(r) + head * step.head_size;
      args.first[q] = span.first;
      args.last[q] = span.last;
      args.out[q] = scratch.part + q * padded;
      maximum[q] = kMinusInfinity;
      denominator[q] = 0.0f;
    }
    std::fill_n(scratch.running, queries * padded, 0.0f);
    for (int partition = whole.first_partition; partition < whole.end_partition; ++partition) {
      const std::byte *keys[kPartitionPages], *values[kPartitionPages];
      set_partition(step, batch, last_row.sequence, kv_head, partition, whole, args, keys, values);
      table_.attend(args);
      for (int q = 0; q < queries; ++q) {
        table_.merge(scratch.running + q * padded, &maximum[q], &denominator[q], scratch.part + q * padded,
                     part_maximum[q], part_denominator[q], step.head_size);
      }
    }
    for (int q = 0; q < queries; ++q) {
      const int r = first_row + (from + q) / group, head = kv_head * group + (from + q) % group;
      finish_head(step, head, scratch.running + q * padded, maximum[q], denominator[q],
                  work.out.row(r) + head * step.head_size);
    }
  }
}

}  // namespace adze::cpu
