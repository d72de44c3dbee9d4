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

void Mixture::route(const ops::Route& step, const Dispatch& dispatch, const ActivationBuffer& in,
                    const ActivationBuffer& out, int rows, int member) {
  // The router, then the shared expert's gate beside it.
  run_side_by_side(dispatch.matmuls, in, rows, mixture_.logits, mixture_.logits_stride, panel(member, 0), member,
                   team_.size());
  team_.barrier();
  const Share mine = share_of(rows, member, team_.size());
  for (int r = mine.begin; r < mine.end; ++r) {
    choose(step, mixture_.logits + static_cast<std::size_t>(r) * mixture_.logits_stride, out.row(r));
  }
}

// Logits become ids and weights. Comparisons are such that not even NaN can give an id twice, or none.
void Mixture::choose(const ops::Route& step, float* logits, float* out) const {
  const int experts = static_cast<int>(step.weight->rows()), slots = step.slots();
  const float *bias = float_data(step.bias), *choice_bias = float_data(step.choice_bias);
  const float* expert_scale = float_data(step.expert_scale);
  for (int e = 0; e < experts; ++e) logits[e] = logits[e] * step.logit_scale + (bias != nullptr ? bias[e] : 0.0f);

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
  const double factor = static_cast<double>(step.scale) / (step.renormalise ? sum : 1.0);
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

Mixture::Network Mixture::network(const ops::Experts& step, const Dispatch& dispatch, int expert) {
  const bool shared = expert == step.routed.count;
  const BoundMatmul* first = dispatch.matmuls.data() + (shared ? 3 : 0);
  return {first, first + 1, first + 2, shared ? &step.shared : &step.routed, shared ? 0 : expert};
}

template <class F>
void Mixture::for_gathered(const ops::Experts& step, int member, F f) {
  const int experts = expert_count(step);
  const Share share = share_of(first_row(experts), member, team_.size());
  for (int e = 0; e < experts; ++e) {
    const int end = std::min(share.end, first_row(e + 1));
    for (int i = std::max(share.begin, first_row(e)); i < end; ++i) f(i, e);
  }
}

template <class F>
void Mixture::for_groups(const ops::Experts& step, const Dispatch& dispatch, const BoundMatmul* Network::* product,
                         int member, F f) {
  struct Cost {
    std::int64_t group;
    int groups;
  };
  // Bringing 16 rows of weights into registers or cache costs about what multiplying four rows with them does.
  const auto cost = [&](int expert) -> Cost {
    const Network n = network(step, dispatch, expert);
    const ops::Experts::Weights& w = *n.weights;
    const bool is_down = product == &Network::down;
    const int rows = row_count(expert), outputs = is_down ? static_cast<int>(w.down->rows() / w.count) : w.width;
    return {(n.*product)->weight->columns() * (rows + 4), rows == 0 ? 0 : groups_of(outputs)};
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
    if (first < last) f(network(step, dispatch, e), e, first, last);
    at += c.group * c.groups;
  }
}

void Mixture::run(const ops::Experts& step, const Dispatch& dispatch, const ActivationBuffer& in,
                  const ActivationBuffer& routes, const ActivationBuffer& out, int rows, int member) {
  if (member == 0) group(step, routes, rows);
  team_.barrier();
  gather(step, dispatch, in, member);
  team_.barrier();
  for_groups(step, dispatch, &Network::gate, member,
             [&](const Network& n, int expert, int begin, int end) { gate_up(step, n, expert, begin, end, member); });
  team_.barrier();
  quantise_activated(step, dispatch, member);
  for_groups(step, dispatch, &Network::down, member,
             [&](const Network& n, int expert, int begin, int end) { down(n, expert, begin, end, member); });
  team_.barrier();
  combine(step, routes, out, rows, member);
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

// Rounds a gathered row into its expert's tiles, in the form that a product reads.
void Mixture::quantise(const BoundMatmul& reader, const ActivationBuffer& to, const float* x, int gathered,
                       int expert) {
  const int block = reader.kernel->activation_block, width = static_cast<int>(reader.weight->columns());
  const int row = gathered - first_row(expert);
  const Tile tile = tile_of(row, row_count(expert), table_.max_tile);
  if (block == 32) table_.quantise32(x, width, from_row(to.int8_32, first_row(expert), width, 32), row, tile);
  if (block == 256) table_.quantise256(x, width, from_row(to.int8_256, first_row(expert), width, 256), row, tile);
}

void Mixture::gather(const ops::Experts& step, const Dispatch& dispatch, const ActivationBuffer& in, int member) {
  for_gathered(step, member, [&](int i, int expert) {
    const Network n = network(step, dispatch, expert);
    const float* x = in.row(mixture_.rows[i]);
    const int gate_block = n.gate->kernel->activation_block, up_block = n.up->kernel->activation_block;
    // With the zeros that pad it.
    if (gate_block == 0 || up_block == 0) std::copy_n(x, in.stride, mixture_.input.row(i));
    quantise(*n.gate, mixture_.input, x, i, expert);
    if (up_block != gate_block) quantise(*n.up, mixture_.input, x, i, expert);
  });
}

// A product of an expert's rows with weight_rows rows of the map.
MatmulArgs Mixture::product_args(const BoundMatmul& m, std::int64_t weight_row, int weight_rows, const float* bias,
                                 const ActivationBuffer& in, int expert, float* out, std::size_t ld_out,
                                 std::byte* panel) const {
  MatmulArgs a = matmul_args(m, in, row_count(expert), out, ld_out, false, panel);
  a.weights = m.weight->row(weight_row);
  a.rows = weight_rows;
  a.bias = bias;
  a.floats = in.row(first_row(expert));
  if (const int block = m.kernel->activation_block; block != 0) {
    a.quantised = from_row(a.quantised, first_row(expert), a.k, block);
  }
  return a;
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
  MatmulArgs up =
      product_args(*n.up, row, w.width, bias(w.up_bias), mixture_.input, expert, nullptr, 0, panel(member, 1));
  const int column = group_begin * kGroupRows, columns = std::min(group_end * kGroupRows, w.width) - column;
  const bool together = n.gate->kernel == n.up->kernel;
  if (together) {
    n.gate->kernel->gated(gate, up, act, group_begin, group_end);
  } else {
    up.out = mixture_.spare + static_cast<std::size_t>(first_row(expert)) * out.stride;
    up.ld_out = out.stride;
    n.gate->kernel->run(gate, group_begin, group_end);
    n.up->kernel->run(up, group_begin, group_end);
  }
  for (int i = first_row(expert); i < first_row(expert + 1); ++i) {
    if (!together) {
      const float* up_columns = mixture_.spare + static_cast<std::size_t>(i) * out.stride + column;
      table_.gate(out.row(i) + column, up_columns, act, columns);
    }
    // Float products read to the next multiple of 16; networks of other widths may have left numbers there.
    std::fill(out.row(i) + column + columns, out.row(i) + padded16(column + columns), 0.0f);
  }
}

void Mixture::quantise_activated(const ops::Experts& step, const Dispatch& dispatch, int member) {
  const auto is_int8 = [&](int expert) { return network(step, dispatch, expert).down->kernel->activation_block != 0; };
  if (!is_int8(0) && !(step.shared.count > 0 && is_int8(step.routed.count))) return;
  for_gathered(step, member, [&](int i, int expert) {
    quantise(*network(step, dispatch, expert).down, mixture_.activated, mixture_.activated.row(i), i, expert);
  });
  team_.barrier();
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
                      int member) {
  constexpr int kColumns = 256;  // so that the threads share even one row
  const int pieces = (out.width + kColumns - 1) / kColumns;
  const Share share = share_of(rows * pieces, member, team_.size());
  for (int i = share.begin; i < share.end; ++i) {
    const int r = i / pieces, column = i % pieces * kColumns, count = std::min(kColumns, out.width - column);
    float* y = out.row(r) + column;
    if (!step.add) std::fill_n(y, count, 0.0f);
    for (int slot = 0; slot < step.slots; ++slot) {
      const float* part = mixture_.input.row(mixture_.places[r * step.slots + slot]) + column;
      table_.add_scaled(y, part, routes.row(r)[step.slots + slot], count);
    }
  }
}

}  // namespace adze::cpu
