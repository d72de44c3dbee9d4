#include "backend/cpu/cpu_scratch.hpp"

#include <algorithm>

namespace adze::cpu {
namespace {

// Lays the scratch out twice with the same code: once to count its bytes, once to hand them out.
struct Counter {
  std::size_t bytes = 0;
  template <class T>
  T* take(std::size_t count) {
    bytes += Arena::rounded(count * sizeof(T));
    return nullptr;
  }
};

template <class Source>
QuantisedRows quantised(Source& source, std::size_t rows, std::size_t width, std::size_t block,
                        std::size_t sums_block) {
  QuantisedRows q{};
  q.quants = source.template take<std::int8_t>(rows * width);
  q.scales = source.template take<float>(rows * (width / block));
  q.scaled_sums = source.template take<float>(rows * (width / block));
  q.sums = source.template take<std::int32_t>(rows * (width / sums_block));
  return q;
}

template <class Source>
ActivationBuffer activation(Source& source, const BufferUse& use, std::size_t rows) {
  ActivationBuffer b;
  b.width = use.width;
  b.stride = static_cast<std::size_t>(use.stride);
  b.floats = source.template take<float>(rows * b.stride);
  const auto width = static_cast<std::size_t>(use.width);
  if (use.int8_32) b.int8_32 = quantised(source, rows, width, 32, 32);
  if (use.int8_256) b.int8_256 = quantised(source, rows, width, 256, 16);
  if (use.int8_32 || use.int8_256) {
    const std::size_t sets = std::max(static_cast<std::size_t>(use.row_sets), use.each_row ? rows : 0);
    b.blocks = Countdown(source.template take<std::int32_t>(sets * block_units(use.width)));
  }
  return b;
}

template <class Source>
void lay_out_experts(Source& source, ExpertScratch& s, const ExpertUse& use, std::size_t rows) {
  if (use.experts == 0) return;
  const auto experts = static_cast<std::size_t>(use.experts);
  const std::size_t gathered = rows * static_cast<std::size_t>(use.slots);
  s.logits_stride = static_cast<std::size_t>(padded16(use.experts));
  s.logits = source.template take<float>(rows * s.logits_stride);
  s.starts = source.template take<std::int32_t>(experts + 1);
  s.next = source.template take<std::int32_t>(experts);
  s.rows = source.template take<std::int32_t>(gathered);
  s.places = source.template take<std::int32_t>(gathered);
  s.input = activation(source, use.input, gathered);
  s.activated = activation(source, use.activated, gathered);
  s.spare = source.template take<float>(gathered * s.activated.stride);
}

template <class Source>
void lay_out_countdowns(Source& source, Countdowns& c, const CpuSchedule& schedule, std::size_t rows) {
  const CountdownUse& use = schedule.countdowns;
  const std::size_t heads =
      std::max({static_cast<std::size_t>(use.prepared_heads), static_cast<std::size_t>(kSplitRows * schedule.max_heads),
                rows * static_cast<std::size_t>(use.value_heads)});
  c.rows = Countdown(source.template take<std::int32_t>(2 * static_cast<std::size_t>(use.lanes)));
  c.heads = Countdown(source.template take<std::int32_t>(heads));
}

template <class Source>
void lay_out(Source& source, Scratch& s, const CpuSchedule& schedule, const ops::Plan& plan, int row_count,
             int threads) {
  const auto rows = static_cast<std::size_t>(row_count);
  std::vector<ActivationBuffer> slots;
  for (const BufferUse& use : schedule.slots) slots.push_back(activation(source, use, rows));
  for (const BufferUse& use : schedule.buffers) {
    ActivationBuffer b = slots[static_cast<std::size_t>(use.slot)];
    b.width = use.width;
    b.stride = static_cast<std::size_t>(use.stride);
    if (!use.int8_32) b.int8_32 = {};
    if (!use.int8_256) b.int8_256 = {};
    s.buffers.push_back(b);
  }
  s.head_input = activation(source, schedule.head_input, rows);
  s.spare = source.template take<float>(rows * static_cast<std::size_t>(schedule.spare_stride));
  lay_out_experts(source, s.experts, schedule.experts, rows);
  lay_out_countdowns(source, s.countdowns, schedule, rows);
  const auto padded = static_cast<std::size_t>(schedule.max_padded_head);
  for (int i = 0; i < threads; ++i) {
    MemberScratch m;
    for (std::byte*& panel : m.panels) panel = source.template take<std::byte>(schedule.panel_bytes);
    m.scores = source.template take<float>(kMaxQueries * kPartition);
    m.unpacked = source.template take<float>(kPageTokens * padded);
    m.running = source.template take<float>(kMaxQueries * padded);
    m.part = source.template take<float>(kMaxQueries * padded);
    s.members.push_back(m);
  }
  const std::size_t parts =
      kSplitRows * static_cast<std::size_t>(schedule.max_heads) * static_cast<std::size_t>(schedule.max_partitions);
  s.part_out = source.template take<float>(parts * padded);
  s.part_maximum = source.template take<float>(parts);
  s.part_denominator = source.template take<float>(parts);
  for (const ops::RopeSpec& rope : plan.ropes) {
    const std::size_t half = rope.inverse_frequency.size();
    s.rope_cosine.push_back(source.template take<float>(rows * half));
    s.rope_sine.push_back(source.template take<float>(rows * half));
  }
}

}  // namespace

std::span<const float> copy_rows(const ActivationBuffer& from, int first, int rows, std::vector<float>& to) {
  const auto width = static_cast<std::size_t>(from.width);
  to.resize(static_cast<std::size_t>(rows) * width);
  for (int r = 0; r < rows; ++r) {
    std::copy_n(from.row(first + r), width, to.data() + static_cast<std::size_t>(r) * width);
  }
  return to;
}

std::size_t scratch_bytes(const CpuSchedule& schedule, const ops::Plan& plan, int rows, int threads) {
  Counter counter;
  Scratch scratch;
  lay_out(counter, scratch, schedule, plan, rows, threads);
  return counter.bytes;
}

Result<Scratch> make_scratch(const CpuSchedule& schedule, const ops::Plan& plan, int rows, int threads) {
  Scratch scratch;
  ADZE_TRY(scratch.arena, Arena::reserve(scratch_bytes(schedule, plan, rows, threads)));
  lay_out(scratch.arena, scratch, schedule, plan, rows, threads);
  return scratch;
}

}  // namespace adze::cpu
