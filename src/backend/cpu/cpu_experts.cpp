#include "backend/cpu/cpu_experts.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace adze::cpu {
namespace {

int groups_of(int rows) { return (rows + kGroupRows - 1) / kGroupRows; }

// The int8 rows from `row` on, which begin a tile of their own.
QuantisedRows from_row(const QuantisedRows& x, int row, int width, int block) {
  const auto r = static_cast<std::size_t>(row), n = static_cast<std::size_t>(width);
  const std::size_t blocks = n / static_cast<std::size_t>(block), sums = n / (block == 32 ? 32 : 16);
  return {x.quants + r * n, x.scales + r * blocks, x.scaled_sums + r * blocks, x.sums + r * sums};
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

// --- routing ---------------------------------------------------------------------------------------------------------

// The router, then the shared expert's gate beside it.
Columns Mixture::route(const Products& products, const ActivationBuffer& in, int rows, int member) {
  return run_side_by_side(products, in, rows, mixture_.logits, mixture_.logits_stride, panel(member, 0), member,
                          team_.size());
}

void Mixture::choose(const ops::Route& step, const ActivationBuffer& out, int row) const {
  choose(step, mixture_.logits + static_cast<std::size_t>(row) * mixture_.logits_stride, out.row(row));
}

// Logits become ids and weights. Comparisons are such that not even NaN can give an id twice, or none; the weights are
// NaN then, whatever was chosen, so that the row's logits tell of it.
void Mixture::choose(const ops::Route& step, float* logits, float* out) const {
  const int experts = static_cast<int>(step.weight->rows()), slots = step.slots();
  const float *bias = float_data(step.bias), *choice_bias = float_data(step.choice_bias);
  const float* expert_scale = float_data(step.expert_scale);
  double poison = 0.0;  // NaN where a logit is not finite
  for (int e = 0; e < experts; ++e) {
    logits[e] = logits[e] * step.logit_scale + (bias != nullptr ? bias[e] : 0.0f);
    poison += 0.0 * static_cast<double>(logits[e]);
  }

  const bool softmax = step.scoring == ops::Route::Scoring::softmax;
  const double largest = static_cast<double>(*std::max_element(logits, logits + experts));
  double denominator = 1.0;  // which renormalising would take out again
  if (softmax && (!step.renormalise || choice_bias != nullptr)) {
    denominator = 0.0;
    for (int e = 0; e < experts; ++e) denominator += std::exp(static_cast<double>(logits[e]) - largest);
  }
  const auto probability = [&](int e) {
    const double s = static_cast<double>(logits[e]);
    return softmax ? std::exp(s - largest) / denominator : sigmoid(s);
  };
  const auto rank = [&](int e) {
    return choice_bias == nullptr ? logits[e] : static_cast<float>(probability(e)) + choice_bias[e];
  };

  // The best so far, best first; a later expert must be better to move ahead.
  std::array<int, limits::kMaxExpertsUsed> chosen;
  std::array<float, limits::kMaxExpertsUsed> ranks;
  int count = 0;
  for (int e = 0; e < experts; ++e) {
    const float value = rank(e);
    if (count == step.used && !(value > ranks[static_cast<std::size_t>(count - 1)])) continue;
    int at = count < step.used ? count++ : count - 1;
    for (; at > 0 && value > ranks[static_cast<std::size_t>(at - 1)]; --at) {
      chosen[static_cast<std::size_t>(at)] = chosen[static_cast<std::size_t>(at - 1)];
      ranks[static_cast<std::size_t>(at)] = ranks[static_cast<std::size_t>(at - 1)];
    }
    chosen[static_cast<std::size_t>(at)] = e;
    ranks[static_cast<std::size_t>(at)] = value;
  }
  std::sort(chosen.begin(), chosen.begin() + count);

  double sum = 0.0;
  std::array<double, limits::kMaxExpertsUsed> weights;
  for (int i = 0; i < count; ++i) {
    weights[static_cast<std::size_t>(i)] = probability(chosen[static_cast<std::size_t>(i)]);
    sum += weights[static_cast<std::size_t>(i)];
  }
  const double factor = static_cast<double>(step.scale) / (step.renormalise ? sum : 1.0) + poison;
  for (int i = 0; i < count; ++i) {
    const int e = chosen[static_cast<std::size_t>(i)];
    const double scale = expert_scale != nullptr ? static_cast<double>(expert_scale[e]) : 1.0;
    out[i] = static_cast<float>(e);
    out[slots + i] = static_cast<float>(weights[static_cast<std::size_t>(i)] * factor * scale);
  }
  if (!step.shared) return;
  out[slots - 1] = static_cast<float>(experts);
  out[2 * slots - 1] =
      step.shared_gate == nullptr ? 1.0f : static_cast<float>(sigmoid(static_cast<double>(logits[experts])));
}

// --- experts ---------------------------------------------------------------------------------------------------------

Mixture::Network Mixture::network(const ops::Experts& step, const Products& products, int expert) {
  const bool shared = expert == step.routed.count;
  const BoundMatmul* first = products.data() + (shared ? 3 : 0);
  return {first, first + 1, first + 2, shared ? &step.shared : &step.routed, shared ? 0 : expert};
}

template <class F>
void Mixture::for_groups(const ops::Experts& step, const Products& products, int member, F f) {
  struct Cost {
    std::int64_t group;
    int groups;
  };
  // Bringing 16 rows of weights into registers or cache costs about what multiplying four rows with them does.
  const auto cost = [&](int expert) -> Cost {
    const Network n = network(step, products, expert);
    const int rows = row_count(expert);
    return {n.gate->weight->columns() * (rows + 4), rows == 0 ? 0 : groups_of(n.weights->width)};
  };
  const int experts = expert_count(step);
  std::int64_t total = 0;
  for (int e = 0; e < experts; ++e) total += cost(e).group * cost(e).groups;
  const std::int64_t begin = total * member / team_.size(), end = total * (member + 1) / team_.size();
  std::int64_t at = 0;
  for (int e = 0; e < experts; ++e) {
    const Cost c = cost(e);
    // A group is its member's whose share it starts in.
    const auto starting_from = [&](std::int64_t bound) {
      return static_cast<int>(std::clamp<std::int64_t>((bound - at + c.group - 1) / c.group, 0, c.groups));
    };
    const int first = starting_from(begin), last = starting_from(end);
    if (first < last) f(network(step, products, e), e, first, last);
    at += c.group * c.groups;
  }
}

void Mixture::gather(const ops::Experts& step, const Products& products, const ActivationBuffer& in,
                     const ActivationBuffer& routes, int rows, bool last, Crew crew) {
  if (last) group(step, routes, rows);
  if (!crew.alone) team_.barrier();
  const int experts = expert_count(step);
  const Share share = share_of(first_row(experts), crew.member, crew.members);
  for (int e = 0; e < experts; ++e) {
    const int end = std::min(share.end, first_row(e + 1));
    for (int i = std::max(share.begin, first_row(e)); i < end; ++i) {
      const Network n = network(step, products, e);
      const float* x = in.row(mixture_.rows[i]);
      const int gate_block = n.gate->kernel->activation_block, up_block = n.up->kernel->activation_block;
      // With the zeros that pad it.
      if (gate_block == 0 || up_block == 0) std::copy_n(x, in.stride, mixture_.input.row(i));
      const int row = i - first_row(e);
      rounding_.row(rows_of(mixture_.input, e, *n.gate), row, row_count(e), x);
      if (up_block != gate_block) rounding_.row(rows_of(mixture_.input, e, *n.up), row, row_count(e), x);
    }
  }
}

void Mixture::group(const ops::Experts& step, const ActivationBuffer& routes, int rows) {
  const int experts = expert_count(step);
  const auto id = [&](int row, int slot) { return static_cast<int>(routes.row(row)[slot]); };
  std::fill_n(mixture_.starts, experts + 1, 0);
  for (int r = 0; r < rows; ++r) {
    for (int slot = 0; slot < step.slots; ++slot) ++mixture_.starts[id(r, slot) + 1];
  }
  for (int e = 0; e < experts; ++e) {
    mixture_.starts[e + 1] += mixture_.starts[e];
    mixture_.next[e] = mixture_.starts[e];
  }
  for (int r = 0; r < rows; ++r) {
    for (int slot = 0; slot < step.slots; ++slot) {
      const std::int32_t place = mixture_.next[id(r, slot)]++;
      mixture_.rows[place] = r;
      mixture_.places[r * step.slots + slot] = place;
    }
  }
}

ActivationBuffer Mixture::rows_of(const ActivationBuffer& gathered, int expert, const BoundMatmul& reader) const {
  const int first = first_row(expert), block = reader.kernel->activation_block;
  ActivationBuffer b{.floats = gathered.row(first), .stride = gathered.stride, .blocks = gathered.blocks};
  b.width = static_cast<int>(reader.weight->columns());
  if (block == 32) b.int8_32 = from_row(gathered.int8_32, first, gathered.width, 32);
  if (block == 256) b.int8_256 = from_row(gathered.int8_256, first, gathered.width, 256);
  return b;
}

MatmulArgs Mixture::product_args(const BoundMatmul& m, std::int64_t weight_row, int weight_rows, const float* bias,
                                 const ActivationBuffer& in, int expert, float* out, std::size_t ld_out,
                                 std::byte* panel) const {
  MatmulArgs a = matmul_args(m, rows_of(in, expert, m), row_count(expert), out, ld_out, false, panel);
  a.weights = m.weight->row(weight_row);
  a.packed = packed_slice(m, weight_row / weight_rows);
  a.groups = m.weight->groups_from(weight_row);
  a.rows = weight_rows;
  a.bias = bias;
  return a;
}

void Mixture::gate_up(const ops::Experts& step, const Products& products, int member) {
  for_groups(step, products, member, [&](const Network& n, int expert, int begin, int end) {
    gate_up(step, n, expert, begin, end, member);
    const int rows = row_count(expert);
    const std::size_t units = static_cast<std::size_t>(expert) * block_units(mixture_.activated.width);
    rounding_.columns(rows_of(mixture_.activated, expert, *n.down), {0, rows, rows, units}, begin * kGroupRows,
                      std::min(end * kGroupRows, n.weights->width));
  });
}

void Mixture::gate_up(const ops::Experts& step, const Network& n, int expert, int group_begin, int group_end,
                      int member) {
  const ops::Experts::Weights& w = *n.weights;
  const auto act = gated_activation(step.activation).value();
  const std::int64_t row = std::int64_t{n.index} * w.width;
  const auto bias = [&](ops::WeightRef b) {
    return b == nullptr ? nullptr : float_data(b) + std::ptrdiff_t{n.index} * w.width;
  };
  const ActivationBuffer& out = mixture_.activated;
  float* const first = out.row(first_row(expert));
  const MatmulArgs gate = product_args(*n.gate, row, w.width, bias(w.gate_bias), mixture_.input, expert, first,
                                       out.stride, panel(member, 0));
  const MatmulArgs up =
      product_args(*n.up, row, w.width, bias(w.up_bias), mixture_.input, expert, nullptr, 0, panel(member, 1));
  if (n.gate->kernel == n.up->kernel && n.gate->tuning->pair_at_once) {
    n.gate->kernel->gated(gate, up, act, group_begin, group_end);
  } else {
    gate_apart(step, expert, n, gate, up, group_begin, group_end);
  }
  // Float products read to the next multiple of 16; networks of other widths may have left numbers there.
  const int end = std::min(group_end * kGroupRows, w.width);
  for (int i = first_row(expert); i < first_row(expert + 1); ++i) {
    std::fill(out.row(i) + end, out.row(i) + padded16(end), 0.0f);
  }
}

// Weights of two types are multiplied one after the other, those of one type where that was measured to pay.
void Mixture::gate_apart(const ops::Experts& step, int expert, const Network& n, const MatmulArgs& gate, MatmulArgs up,
                         int group_begin, int group_end) {
  const ActivationBuffer& out = mixture_.activated;
  up.out = mixture_.spare + static_cast<std::size_t>(first_row(expert)) * out.stride;
  up.ld_out = out.stride;
  n.gate->kernel->run(gate, group_begin, group_end);
  n.up->kernel->run(up, group_begin, group_end);
  const int column = group_begin * kGroupRows, columns = std::min(group_end * kGroupRows, n.weights->width) - column;
  for (int i = first_row(expert); i < first_row(expert + 1); ++i) {
    table_.gate(out.row(i) + column, mixture_.spare + static_cast<std::size_t>(i) * out.stride + column,
                gated_activation(step.activation).value(), columns);
  }
}

Columns Mixture::down(const ops::Experts& step, const Products& products, const ActivationBuffer& routes,
                      const ActivationBuffer& out, int rows, int member) {
  const Share share = share_of(groups_of(out.width), member, team_.size());
  const Columns columns{std::min(share.begin * kGroupRows, out.width), std::min(share.end * kGroupRows, out.width)};
  for (int e = 0; e < expert_count(step) && columns.count() > 0; ++e) {
    if (row_count(e) > 0) down(network(step, products, e), e, share.begin, share.end, member);
  }
  combine(step, routes, out, rows, columns);
  rounding_.columns(out, {0, rows, rows, 0}, columns.begin, columns.end);
  return columns;
}

// What an expert returns for a row takes the place of the row that it was given.
void Mixture::down(const Network& n, int expert, int group_begin, int group_end, int member) {
  const ops::Experts::Weights& w = *n.weights;
  const int outputs = static_cast<int>(w.down->rows() / w.count);
  const float* bias = w.down_bias == nullptr ? nullptr : float_data(w.down_bias) + std::ptrdiff_t{n.index} * outputs;
  const ActivationBuffer& out = mixture_.input;
  const MatmulArgs a = product_args(*n.down, std::int64_t{n.index} * outputs, outputs, bias, mixture_.activated, expert,
                                    out.row(first_row(expert)), out.stride, panel(member, 0));
  n.down->kernel->run(a, group_begin, group_end);
}

void Mixture::combine(const ops::Experts& step, const ActivationBuffer& routes, const ActivationBuffer& out, int rows,
                      Columns columns) const {
  for (int r = 0; r < rows; ++r) {
    float* y = out.row(r) + columns.begin;
    if (!step.add) std::fill_n(y, columns.count(), 0.0f);
    for (int slot = 0; slot < step.slots; ++slot) {
      const float* part = mixture_.input.row(mixture_.places[r * step.slots + slot]) + columns.begin;
      table_.add_scaled(y, part, routes.row(r)[step.slots + slot], columns.count());
    }
  }
}

}  // namespace adze::cpu
