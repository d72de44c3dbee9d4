#include "backend/cpu/cpu_delta_net.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace adze::cpu {
namespace {

// Columns of a head's state that one item of work covers: a quarter of a kilobyte per key, so that a head of 128 keys
// stays in the first cache between the walk that reads a row's sums and the one that writes its update. They also lie
// together, [columns / 64][key_size][64]: as every second quarter of a row they would share half of that cache's sets.
constexpr int kWideColumns = 64, kNarrowColumns = 16;

// Rows lie tens of kilobytes apart, farther than the processor's own prefetch goes: asked for two rows ahead, a
// prompt's convolution takes 0.7 of the time.
constexpr int kRowsAhead = 2;

int columns_of(const ops::DeltaPrep& step) { return static_cast<int>(step.convolution->columns()); }
std::size_t stride_of(const ops::DeltaPrep& step) { return static_cast<std::size_t>(padded16(step.heads.channels())); }

// Floats of a member's copy of columns of a state, and of what replayed rows give in them.
constexpr std::size_t kReplayedCount = std::size_t{limits::kMaxDraft} * kWideColumns;
std::size_t block_count(const ops::Plan& plan) {
  int keys = 0;
  for (const ops::StateLayer& layer : plan.state_layers) keys = std::max(keys, layer.key_size);
  return static_cast<std::size_t>(keys) * kWideColumns;
}

// Where the keys of a prepared row begin: they, the values and the gates are all that moves a state.
int keys_of(const ops::DeltaHeads& heads) { return heads.key_heads * heads.key_size; }

}  // namespace

std::size_t DeltaNet::bytes(const ops::Plan& plan, int members) {
  if (plan.state_layers.empty()) return 0;
  std::size_t bytes = static_cast<std::size_t>(members) * (Arena::rounded(block_count(plan) * sizeof(float)) +
                                                           Arena::rounded(kReplayedCount * sizeof(float)));
  for (const ops::Step& step : plan.steps) {
    const auto* prep = std::get_if<ops::DeltaPrep>(&step);
    if (prep == nullptr) continue;
    bytes += Arena::rounded(static_cast<std::size_t>(columns_of(*prep)) * stride_of(*prep) * sizeof(float));
  }
  return bytes;
}

Result<DeltaNet> DeltaNet::create(const ops::Plan& plan, const KernelTable& table, int members) {
  DeltaNet net;
  net.table_ = &table;
  net.convolutions_.resize(plan.state_layers.size());
  ADZE_TRY(net.arena_, Arena::reserve(bytes(plan, members)));
  for (int i = 0; i < members && !plan.state_layers.empty(); ++i) {
    auto* state = net.arena_.take<float>(block_count(plan));
    net.blocks_.push_back({state, net.arena_.take<float>(kReplayedCount)});
  }
  for (const ops::Step& step : plan.steps) {
    const auto* prep = std::get_if<ops::DeltaPrep>(&step);
    if (prep == nullptr) continue;
    const int kernel = columns_of(*prep), channels = prep->heads.channels();
    const std::size_t stride = stride_of(*prep);
    auto* packed = net.arena_.take<float>(static_cast<std::size_t>(kernel) * stride);
    float taps[limits::kMaxConvolution];
    for (int c = 0; c < channels; ++c) {
      tensor::dequantise_row(*prep->convolution, c, taps);
      for (int j = 0; j < kernel; ++j)
        packed[static_cast<std::size_t>(j) * stride + static_cast<std::size_t>(c)] = taps[j];
    }
    net.convolutions_[static_cast<std::size_t>(prep->state_layer)] = {packed, stride, kernel};
  }
  return net;
}

DeltaNet::Run DeltaNet::run_at(const backend::Batch& batch, int first) {
  const backend::Row& row = batch.rows[static_cast<std::size_t>(first)];
  int end = first + 1;
  while (end < static_cast<int>(batch.rows.size()) &&
         batch.rows[static_cast<std::size_t>(end)].sequence == row.sequence)
    ++end;
  const backend::SequencePages& sequence = batch.sequences[static_cast<std::size_t>(row.sequence)];
  return {.first = first,
          .count = end - first,
          .slot = sequence.slot,
          .fresh = row.position == 0,
          .replay = sequence.replay,
          .certain = std::min(end - first, sequence.certain)};
}

// The channels of one head through all rows of the run; then the last inputs go to the state and the uncertain ones to
// the log, of which nobody else reads these channels.
void DeltaNet::convolve_head(const ops::DeltaPrep& step, int unit, const Run& run, const StateStore& states,
                             const ActivationBuffer& in, const ActivationBuffer& out) const {
  const ops::DeltaHeads& h = step.heads;
  const Convolution& convolution = convolutions_[static_cast<std::size_t>(step.state_layer)];
  const Columns columns = prep_columns(step, unit);
  const int channel = columns.begin, size = columns.count();
  const bool is_query = unit < h.key_heads, is_value = unit >= 2 * h.key_heads;
  const int kernel = convolution.kernel, kept = kernel - 1;
  const std::size_t stride = convolution.stride;
  float* past = states.inputs(run.slot, step.state_layer);
  if (run.fresh) {
    for (int i = 0; i < kept; ++i) std::fill_n(past + static_cast<std::size_t>(i) * stride + channel, size, 0.0f);
  }
  // Row 0 is the first one that is replayed, else the first of the batch; row -1 is the last one of the state.
  const auto input = [&](int row) -> const float* {
    if (row >= run.replay) return in.row(run.first + row - run.replay) + channel;
    if (row >= 0) return states.logged_inputs(run.slot, step.state_layer, row) + channel;
    return past + static_cast<std::size_t>(kept + row) * stride + channel;
  };
  const int rows = run.replay + run.count;
  const float* window[limits::kMaxConvolution];
  for (int r = is_query ? run.replay : 0; r < rows; ++r) {
    if (r + kRowsAhead < rows) {
      for (int i = 0; i < size; i += 16) __builtin_prefetch(input(r + kRowsAhead) + i);
    }
    for (int j = 0; j < kernel; ++j) window[j] = input(r - kept + j);
    float* y = r < run.replay ? states.replayed(run.slot, r) + channel - keys_of(h)
                              : out.row(run.first + r - run.replay) + channel;
    table_->convolve(window, convolution.weights + channel, stride, kernel, size, y);
    if (!is_value) table_->l2_norm(y, step.l2_epsilon, is_query ? step.query_scale : 1.0f, h.key_size);
  }
  // In order: where rows of the state or of the log remain, they move towards its beginning.
  const int moved = run.replay + run.certain;
  for (int i = 0; i < kept; ++i) {
    std::copy_n(input(moved - kept + i), size, past + static_cast<std::size_t>(i) * stride + channel);
  }
  for (int i = 0; i < run.uncertain(); ++i) {
    std::copy_n(input(moved + i), size, states.logged_inputs(run.slot, step.state_layer, i) + channel);
  }
}

void DeltaNet::gates(const ops::DeltaPrep& step, const Run& run, const StateStore& states, const ActivationBuffer& in,
                     const ActivationBuffer& out) const {
  const ops::DeltaHeads& h = step.heads;
  const int per_key_head = h.value_heads / h.key_heads;
  float sorted[2 * limits::kMaxHeads];
  for (int r = run.first; r < run.first + run.count; ++r) {
    const float* b = in.row(r) + h.projected() - 2 * h.value_heads;
    const float* a = b + h.value_heads;
    if (h.gates_by_key_head) {
      for (int j = 0; j < h.value_heads; ++j) {
        const float* of_key_head = b + static_cast<std::ptrdiff_t>(j / per_key_head) * 2 * per_key_head;
        sorted[j] = of_key_head[j % per_key_head];
        sorted[h.value_heads + j] = of_key_head[per_key_head + j % per_key_head];
      }
      b = sorted;
      a = sorted + h.value_heads;
    }
    float* decay = out.row(r) + h.channels();
    table_->delta_gates(a, b, float_data(step.rate), float_data(step.dt_bias), h.value_heads, decay,
                        decay + h.value_heads);
  }
  const int count = 2 * h.value_heads;
  for (int i = 0; i < run.replay; ++i) {
    std::copy_n(states.logged_gates(run.slot, step.state_layer, i), count,
                states.replayed(run.slot, i) + h.channels() - keys_of(h));
  }
  for (int i = 0; i < run.uncertain(); ++i) {
    std::copy_n(out.row(run.first + run.certain + i) + h.channels(), count,
                states.logged_gates(run.slot, step.state_layer, i));
  }
}

Columns DeltaNet::prep_columns(const ops::DeltaPrep& step, int unit) {
  const ops::DeltaHeads& h = step.heads;
  const int vectors = 2 * h.key_heads;
  if (unit < vectors) return {unit * h.key_size, (unit + 1) * h.key_size};
  const int values = vectors * h.key_size, head = unit - vectors;
  if (head < h.value_heads) return {values + head * h.value_size, values + (head + 1) * h.value_size};
  return {h.projected() - 2 * h.value_heads, h.projected()};
}

void DeltaNet::prep(const ops::DeltaPrep& step, int unit, const backend::Batch& batch, const StateStore& states,
                    const ActivationBuffer& in, const ActivationBuffer& out) const {
  for (int first = 0; first < static_cast<int>(batch.rows.size());) {
    const Run run = run_at(batch, first);
    first += run.count;
    if (unit == prep_units(step) - 1) {
      gates(step, run, states, in, out);
    } else {
      convolve_head(step, unit, run, states, in, out);
    }
  }
}

void DeltaNet::scan(const ops::DeltaScan& step, const backend::Batch& batch, const StateStore& states,
                    const ActivationBuffer& in, const ActivationBuffer& out, const Finish* finish,
                    const Countdown& heads, int member, int members) const {
  const ops::DeltaHeads& h = step.heads;
  const bool few = h.value_heads * h.value_size < 2 * members * kWideColumns;
  const int wide = few ? kNarrowColumns : kWideColumns;
  const int pieces = (h.value_size + wide - 1) / wide;
  const int padded = padded16(h.value_size);
  const int rows = static_cast<int>(batch.rows.size());
  int item = 0;
  std::size_t index = 0;  // of the run
  for (int first = 0; first < rows; ++index) {
    const Run run = run_at(batch, first);
    float* memory = states.memory(run.slot, step.state_layer);
    const float* row = in.row(run.first);
    for (int unit = 0; unit < h.value_heads * pieces; ++unit, ++item) {
      if (item % members != member) continue;
      const int head = unit / pieces, column = unit % pieces * wide;
      DeltaScanArgs a{};
      const int block = column / kWideColumns * kWideColumns, block_width = std::min(kWideColumns, padded - block);
      a.next = memory + static_cast<std::size_t>(head * padded + block) * static_cast<std::size_t>(h.key_size) +
               column - block;
      a.state = a.next;
      a.state_stride = static_cast<std::size_t>(block_width);
      a.key_size = h.key_size;
      a.columns = std::min(wide, h.value_size - column);
      // `from`: the keys of a prepared row, which values and gates follow.
      const auto read = [&](const float* from, std::size_t stride) {
        a.k = from + h.key_head(head) * h.key_size;
        a.v = from + keys_of(h) + head * h.value_size + column;
        a.decay = from + h.channels() - keys_of(h) + head;
        a.beta = a.decay + h.value_heads;
        a.row_stride = stride;
      };
      if (run.fresh) {
        for (int d = 0; d < h.key_size; ++d) {
          std::fill_n(a.next + static_cast<std::size_t>(d) * a.state_stride, padded16(a.columns), 0.0f);
        }
      }
      if (run.replay > 0) {
        read(states.replayed(run.slot, 0), states.replay_stride());
        a.q = a.k;  // nobody wants what comes out
        a.rows = run.replay;
        a.out = blocks_[static_cast<std::size_t>(member)].replayed;
        a.out_stride = kWideColumns;
        table_->delta_scan(a);
      }
      read(row + keys_of(h), in.stride);
      a.q = row + h.key_head(head) * h.key_size;
      a.out = out.row(run.first) + head * h.value_size + column;
      a.out_stride = out.stride;
      scan_rows(a, run, member);
      const auto counter = index * static_cast<std::size_t>(h.value_heads) + static_cast<std::size_t>(head);
      if (finish != nullptr && heads.complete(counter, a.columns, h.value_size)) {
        finish_head(*finish, head, {run.first, run.count, rows, index * block_units(finish->out.width)});
      }
    }
    first += run.count;
  }
}

// The rows of a run behind the replayed ones: `a` has all but their number, and stands at the first.
void DeltaNet::scan_rows(DeltaScanArgs a, const Run& run, int member) const {
  if (run.certain > 0) {
    a.rows = run.certain;
    table_->delta_scan(a);
  }
  if (run.uncertain() == 0) return;
  const auto certain = static_cast<std::size_t>(run.certain);
  for (const float** at : {&a.q, &a.k, &a.v, &a.decay, &a.beta}) *at += certain * a.row_stride;
  a.out += certain * a.out_stride;
  a.rows = run.uncertain();
  a.next = blocks_[static_cast<std::size_t>(member)].state;
  table_->delta_scan(a);
}

void DeltaNet::out(const Finish& finish, int head, const backend::Batch& batch) const {
  const int rows = static_cast<int>(batch.rows.size());
  finish_head(finish, head, {0, rows, rows, 0});
}

void DeltaNet::finish_head(const Finish& finish, int head, const RowSet& rows) const {
  const ops::NormSpec& spec = finish.step.norm;
  const ops::DeltaHeads& h = finish.step.heads;
  const auto norm = spec.kind == ops::NormSpec::Kind::rms ? table_->rms_norm : table_->layer_norm;
  const int at = head * h.value_size;
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    float normed[limits::kMaxHeadSize];
    norm(finish.in.row(r) + at, float_data(spec.weight), spec.one_plus, spec.epsilon, h.value_size, normed);
    float* y = finish.out.row(r) + at;
    std::copy_n(finish.gate.row(r) + h.channels() + at, h.value_size, y);
    table_->gate(y, normed, GatedActivation::silu, h.value_size);
  }
  finish.rounding.columns(finish.out, rows, at, at + h.value_size);
}

}  // namespace adze::cpu
