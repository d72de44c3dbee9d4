// Gated DeltaNet: delta_prep, delta_scan, delta_out.
#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "ops/ref/ref.hpp"

namespace adze::ops::ref {
namespace {

std::vector<float> weight_values(WeightRef weight) {
  ADZE_CHECK(weight != nullptr, "a weight of Gated DeltaNet is missing");
  std::vector<float> values(static_cast<std::size_t>(weight->shape.elements()));
  tensor::dequantise_row(weight->type, weight->bytes.data(), values.data(), weight->shape.elements());
  return values;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// Scales to length 1 (nearly, by epsilon) times `scale`.
void l2_normalise(std::span<float> head, double epsilon, double scale) {
  double sum = 0.0;
  for (const float x : head) sum += static_cast<double>(x) * static_cast<double>(x);
  const double factor = scale / std::sqrt(sum + epsilon);
  for (float& x : head) x = static_cast<float>(static_cast<double>(x) * factor);
}

void check_heads(const DeltaHeads& heads) {
  ADZE_CHECK(heads.key_heads > 0 && heads.value_heads % heads.key_heads == 0, "{} value heads over {} key heads",
             heads.value_heads, heads.key_heads);
}

}  // namespace

DeltaState::DeltaState(const StateLayer& layer)
    : inputs(layer.kernel - 1, layer.channels),
      memory(static_cast<std::size_t>(layer.value_heads) * static_cast<std::size_t>(layer.key_size) *
             static_cast<std::size_t>(layer.value_size)) {}

Rows delta_prep(const DeltaPrep& step, const Rows& in, DeltaState& state) {
  const DeltaHeads& h = step.heads;
  check_heads(h);
  const int channels = h.channels(), past = state.inputs.count, kernel = past + 1;
  ADZE_CHECK(in.width == h.projected() && state.inputs.width == channels, "rows of {}, state of {}", in.width,
             state.inputs.width);
  const std::vector<float> convolution = weight_values(step.convolution), rate = weight_values(step.rate),
                           dt_bias = weight_values(step.dt_bias);
  ADZE_CHECK(convolution.size() == static_cast<std::size_t>(channels) * static_cast<std::size_t>(kernel),
             "{} weights of a convolution over {} x {}", convolution.size(), channels, kernel);

  // The inputs of the convolution: what the state holds, then these rows.
  Rows inputs(past + in.count, channels);
  std::ranges::copy(state.inputs.values, inputs.values.begin());
  for (int row = 0; row < in.count; ++row) std::ranges::copy_n(in[row].begin(), channels, inputs[past + row].begin());
  const int r = h.value_heads / h.key_heads;
  const int gates = channels + h.value_heads * h.value_size;

  Rows out(in.count, h.prepared());
  for (int row = 0; row < in.count; ++row) {
    const std::span<float> y = out[row];
    for (int c = 0; c < channels; ++c) {
      double sum = 0.0;
      for (int j = 0; j < kernel; ++j) {
        sum += static_cast<double>(convolution[static_cast<std::size_t>(c * kernel + j)]) *
               static_cast<double>(inputs[row + j][static_cast<std::size_t>(c)]);
      }
      y[static_cast<std::size_t>(c)] = static_cast<float>(sum * sigmoid(sum));
    }
    const auto epsilon = static_cast<double>(step.l2_epsilon);
    const auto key_size = static_cast<std::size_t>(h.key_size);
    for (int head = 0; head < 2 * h.key_heads; ++head) {
      l2_normalise(y.subspan(static_cast<std::size_t>(head) * key_size, key_size), epsilon,
                   head < h.key_heads ? static_cast<double>(step.query_scale) : 1.0);
    }
    for (int j = 0; j < h.value_heads; ++j) {
      const int b = gates + (h.gates_by_key_head ? j / r * 2 * r + j % r : j);
      const int a = b + (h.gates_by_key_head ? r : h.value_heads);
      const auto value = [&](int column) { return static_cast<double>(in[row][static_cast<std::size_t>(column)]); };
      const auto at = static_cast<std::size_t>(j);
      const double step_size = softplus(value(a) + static_cast<double>(dt_bias[at]));
      y[static_cast<std::size_t>(channels + j)] =
          static_cast<float>(std::exp(static_cast<double>(rate[at]) * step_size));
      y[static_cast<std::size_t>(channels + h.value_heads + j)] = static_cast<float>(sigmoid(value(b)));
    }
  }
  for (int i = 0; i < past; ++i) std::ranges::copy(inputs[in.count + i], state.inputs[i].begin());
  return out;
}

Rows delta_scan(const DeltaScan& step, const Rows& in, DeltaState& state) {
  const DeltaHeads& h = step.heads;
  check_heads(h);
  ADZE_CHECK(in.width == h.prepared(), "rows of {} for {}", in.width, h.prepared());
  Rows out(in.count, h.value_heads * h.value_size);
  for (int row = 0; row < in.count; ++row) {
    for (int j = 0; j < h.value_heads; ++j) {
      const float* q = in[row].data() + h.key_head(j) * h.key_size;
      const float* k = q + h.key_heads * h.key_size;
      const float* v = in[row].data() + 2 * h.key_heads * h.key_size + j * h.value_size;
      const auto decay = static_cast<double>(in[row][static_cast<std::size_t>(h.channels() + j)]);
      const auto beta = static_cast<double>(in[row][static_cast<std::size_t>(h.channels() + h.value_heads + j)]);
      float* s = state.memory.data() + static_cast<std::ptrdiff_t>(j) * h.key_size * h.value_size;
      for (int i = 0; i < h.value_size; ++i) {  // the columns of S do not mix
        double recalled = 0.0;
        for (int d = 0; d < h.key_size; ++d) {
          recalled += decay * static_cast<double>(s[d * h.value_size + i]) * static_cast<double>(k[d]);
        }
        const double delta = beta * (static_cast<double>(v[i]) - recalled);
        double sum = 0.0;
        for (int d = 0; d < h.key_size; ++d) {
          float& cell = s[d * h.value_size + i];
          const double updated = decay * static_cast<double>(cell) + static_cast<double>(k[d]) * delta;
          sum += updated * static_cast<double>(q[d]);
          cell = static_cast<float>(updated);
        }
        out[row][static_cast<std::size_t>(j * h.value_size + i)] = static_cast<float>(sum);
      }
    }
  }
  return out;
}

Rows delta_out(const DeltaOut& step, const Rows& in, const Rows& gate) {
  const DeltaHeads& h = step.heads;
  ADZE_CHECK(in.width == h.value_heads * h.value_size && gate.width == h.projected(), "rows of {}, gates of {}",
             in.width, gate.width);
  Rows out(in.count, in.width);
  for (int row = 0; row < in.count; ++row) {
    normalise(step.norm, h.value_size, in[row], out[row]);
    const std::span<const float> z = gate[row].subspan(static_cast<std::size_t>(h.channels()), out[row].size());
    for (std::size_t i = 0; i < z.size(); ++i) {
      const auto x = static_cast<double>(z[i]);
      out[row][i] = static_cast<float>(static_cast<double>(out[row][i]) * x * sigmoid(x));
    }
  }
  return out;
}

}  // namespace adze::ops::ref
