// Mixture of experts: route, experts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"
#include "ops/ref/ref.hpp"

namespace adze::ops::ref {
namespace {

// Row `row` of a weight, in double.
std::vector<double> row_of(const tensor::TensorView& weight, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(weight.columns()));
  tensor::dequantise_row(weight, row, values.data());
  return {values.begin(), values.end()};
}

double dot(const std::vector<double>& a, std::span<const float> b) {
  ADZE_CHECK(a.size() == b.size(), "a weight of {} for rows of {}", a.size(), b.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

std::vector<double> softmax(std::vector<double> s) {
  const double largest = *std::ranges::max_element(s);
  double sum = 0.0;
  for (double& x : s) sum += x = std::exp(x - largest);
  for (double& x : s) x /= sum;
  return s;
}

// The ids of the `count` largest values, ascending; of equals the lower ids.
std::vector<std::size_t> largest(const std::vector<double>& values, int count) {
  std::vector<std::size_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const auto rank = [&](std::size_t i) { return std::isnan(values[i]) ? -HUGE_VAL : values[i]; };
  std::ranges::stable_sort(ids, [&](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
  ids.resize(static_cast<std::size_t>(count));
  std::ranges::sort(ids);
  return ids;
}

std::vector<double> probabilities(Route::Scoring scoring, std::vector<double> s) {
  switch (scoring) {
    case Route::Scoring::softmax: return softmax(std::move(s));
    case Route::Scoring::sigmoid: std::ranges::transform(s, s.begin(), sigmoid); return s;
  }
  ADZE_CHECK(false, "scoring {}", static_cast<int>(scoring));
}

// One product with expert e of a [E, n, m] weight.
std::vector<double> multiply(const tensor::TensorView& weight, int rows, WeightRef bias, int expert,
                             std::span<const float> x) {
  std::vector<double> y(static_cast<std::size_t>(rows));
  for (int r = 0; r < rows; ++r) {
    y[static_cast<std::size_t>(r)] = dot(row_of(weight, std::int64_t{expert} * rows + r), x);
  }
  if (bias != nullptr) {
    const std::vector<double> b = row_of(*bias, expert);
    ADZE_CHECK(b.size() == y.size(), "a bias of {} for {} outputs", b.size(), y.size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += b[i];
  }
  return y;
}

std::vector<double> feed_forward(const Experts::Weights& w, Activation activation, int expert,
                                 std::span<const float> x) {
  const auto gate = multiply(*w.gate, w.width, w.gate_bias, expert, x);
  const auto up = multiply(*w.up, w.width, w.up_bias, expert, x);
  std::vector<float> inner(gate.size());
  for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = static_cast<float>(gated(activation, gate[i], up[i]));
  const auto outputs = static_cast<int>(w.down->rows() / w.count);
  return multiply(*w.down, outputs, w.down_bias, expert, inner);
}

}  // namespace

Rows route(const Route& step, const Rows& in) {
  const auto experts = static_cast<std::size_t>(step.weight->rows());
  ADZE_CHECK(step.used > 0 && static_cast<std::size_t>(step.used) <= experts, "{} of {} experts", step.used, experts);
  const auto vector = [](WeightRef weight) { return weight == nullptr ? std::vector<double>{} : row_of(*weight, 0); };
  const auto bias = vector(step.bias), choice_bias = vector(step.choice_bias), expert_scale = vector(step.expert_scale);
  const auto slots = static_cast<std::size_t>(step.slots());
  Rows out(in.count, 2 * step.slots());
  for (int row = 0; row < in.count; ++row) {
    std::vector<double> s(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      s[e] = dot(row_of(*step.weight, static_cast<std::int64_t>(e)), in[row]) * static_cast<double>(step.logit_scale);
      if (!bias.empty()) s[e] += bias[e];
    }
    const std::vector<double> p = probabilities(step.scoring, s);
    std::vector<double> rank = choice_bias.empty() ? s : p;
    for (std::size_t e = 0; e < choice_bias.size(); ++e) rank[e] += choice_bias[e];
    const std::vector<std::size_t> chosen = largest(rank, step.used);
    double sum = 0.0;
    for (const std::size_t e : chosen) sum += p[e];
    const double poison = 0.0 * std::accumulate(s.begin(), s.end(), 0.0);  // NaN where a logit is not finite
    const double factor = static_cast<double>(step.scale) / (step.renormalise ? sum : 1.0) + poison;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const std::size_t e = chosen[i];
      out[row][i] = static_cast<float>(e);
      out[row][slots + i] = static_cast<float>(p[e] * factor * (expert_scale.empty() ? 1.0 : expert_scale[e]));
    }
    if (!step.shared) continue;
    out[row][slots - 1] = static_cast<float>(experts);
    out[row][2 * slots - 1] =
        step.shared_gate == nullptr ? 1.0f : static_cast<float>(sigmoid(dot(row_of(*step.shared_gate, 0), in[row])));
  }
  return out;
}

void experts(const Experts& step, const Rows& in, const Rows& routes, Rows& out) {
  ADZE_CHECK(routes.width == 2 * step.slots && routes.count == in.count, "routes of {}", routes.width);
  const auto width = static_cast<int>(step.routed.down->rows() / step.routed.count);
  if (!step.add) out = Rows(in.count, width);
  ADZE_CHECK(out.count == in.count && out.width == width, "a residual of {}", out.width);
  const auto slots = static_cast<std::size_t>(step.slots);
  for (int row = 0; row < in.count; ++row) {
    std::vector<double> sum(out[row].begin(), out[row].end());
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const auto expert = static_cast<int>(routes[row][slot]);
      const bool shared = expert == step.routed.count;
      const std::vector<double> y =
          feed_forward(shared ? step.shared : step.routed, step.activation, shared ? 0 : expert, in[row]);
      const double weight = static_cast<double>(routes[row][slots + slot]);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * y[i];
    }
    std::ranges::transform(sum, out[row].begin(), [](double x) { return static_cast<float>(x); });
  }
}

}  // namespace adze::ops::ref
