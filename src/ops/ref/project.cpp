// Matrix products: embed, project, project_add, gated_pair, head.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.hpp"
#include "ops/ref/ref.hpp"

namespace adze::ops::ref {
namespace {

std::vector<float> dequantised_row(const tensor::TensorView& weight, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(weight.columns()));
  tensor::dequantise_row(weight, row, values.data());
  return values;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Calls store(row, output, value) with W x + b in double.
template <class Store>
void for_each_product(WeightRef weight, WeightRef bias, const Rows& in, Store store) {
  ADZE_CHECK(weight != nullptr && weight->columns() == in.width, "a weight for rows of {}", in.width);
  const auto outputs = static_cast<int>(weight->rows());
  std::vector<float> biases;
  if (bias != nullptr) {
    biases = dequantised_row(*bias, 0);
    ADZE_CHECK(biases.size() == static_cast<std::size_t>(outputs), "bias of {}", biases.size());
  }
  for (int output = 0; output < outputs; ++output) {
    const std::vector<float> w = dequantised_row(*weight, output);
    const double b = bias != nullptr ? static_cast<double>(biases[static_cast<std::size_t>(output)]) : 0.0;
    for (int row = 0; row < in.count; ++row) store(row, output, dot(w, in[row]) + b);
  }
}

}  // namespace

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu: return x / (1.0 + std::exp(-x));
    case Activation::gelu_tanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::gelu_erf: return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    case Activation::relu_squared: return x > 0.0 ? x * x : 0.0;
    case Activation::swiglu_oai: break;
  }
  ADZE_CHECK(false, "activation {}", static_cast<int>(activation));
}

double gated(Activation activation, double gate, double up) {
  if (activation != Activation::swiglu_oai) return activate(activation, gate) * up;
  constexpr double kLimit = kOaiLimit;
  const double g = std::min(gate, kLimit), u = std::clamp(up, -kLimit, kLimit);
  return g / (1.0 + std::exp(-static_cast<double>(kOaiAlpha) * g)) * (u + 1.0);
}

Rows multiply(WeightRef weight, WeightRef bias, const Rows& in) {
  ADZE_CHECK(weight != nullptr, "no weight");
  Rows out(in.count, static_cast<int>(weight->rows()));
  for_each_product(weight, bias, in, [&](int row, int output, double value) {
    out[row][static_cast<std::size_t>(output)] = static_cast<float>(value);
  });
  return out;
}

Rows embed(const Embed& step, std::span<const std::int32_t> tokens) {
  ADZE_CHECK(step.table != nullptr, "no table");
  Rows out(static_cast<int>(tokens.size()), static_cast<int>(step.table->columns()));
  for (int row = 0; row < out.count; ++row) {
    const std::int32_t token = tokens[static_cast<std::size_t>(row)];
    ADZE_CHECK(token >= 0 && token < step.table->rows(), "token {} of {}", token, step.table->rows());
    const std::vector<float> values = dequantised_row(*step.table, token);
    for (std::size_t i = 0; i < values.size(); ++i) out[row][i] = values[i] * step.scale;
  }
  return out;
}

Rows project(const Project& step, const Rows& in) {
  std::int64_t width = 0;
  for (const Project::Part& part : step.parts) width += part.weight->rows();
  Rows out(in.count, static_cast<int>(width));
  std::size_t first = 0;
  for (const Project::Part& part : step.parts) {
    for_each_product(part.weight, part.bias, in, [&](int row, int output, double value) {
      out[row][first + static_cast<std::size_t>(output)] = static_cast<float>(value);
    });
    first += static_cast<std::size_t>(part.weight->rows());
  }
  return out;
}

void project_add(const ProjectAdd& step, const Rows& in, Rows& out) {
  if (!step.add) {
    out = multiply(step.weight, step.bias, in);
    return;
  }
  ADZE_CHECK(out.count == in.count && out.width == step.weight->rows(), "a residual of {}", out.width);
  for_each_product(step.weight, step.bias, in, [&](int row, int output, double value) {
    float& h = out[row][static_cast<std::size_t>(output)];
    h = static_cast<float>(static_cast<double>(h) + value);
  });
}

Rows gated_pair(const GatedPair& step, const Rows& in, const Rows* side) {
  ADZE_CHECK(step.gate != nullptr && (step.up == nullptr || step.gate->rows() == step.up->rows()),
             "gate and up differ");
  ADZE_CHECK((step.up == nullptr) == (side != nullptr), "either a weight or a side input");
  const int width = static_cast<int>(step.gate->rows());
  std::vector<double> gates(static_cast<std::size_t>(in.count) * static_cast<std::size_t>(width));
  const auto at = [&](int row, int output) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) + static_cast<std::size_t>(output);
  };
  for_each_product(step.gate, step.gate_bias, in,
                   [&](int row, int output, double value) { gates[at(row, output)] = value; });
  Rows out(in.count, width);
  const auto combine = [&](int row, int output, double value) {
    out.values[at(row, output)] = static_cast<float>(gated(step.activation, gates[at(row, output)], value));
  };
  if (step.up != nullptr) {
    for_each_product(step.up, step.up_bias, in, combine);
    return out;
  }
  for (int row = 0; row < in.count; ++row) {
    for (int i = 0; i < width; ++i) combine(row, i, (*side)[row][static_cast<std::size_t>(step.side_first + i)]);
  }
  return out;
}

Rows head(const Head& step, const Rows& in) {
  Rows normalised(in.count, in.width);
  for (int row = 0; row < in.count; ++row) normalise(step.norm, in[row], normalised[row]);
  const double cap = static_cast<double>(step.softcap);
  Rows out(in.count, static_cast<int>(step.weight->rows()));
  for_each_product(step.weight, step.bias, normalised, [&](int row, int output, double value) {
    const double scaled = value * static_cast<double>(step.scale);
    const double logit = cap != 0.0 ? std::tanh(scaled / cap) * cap : scaled;
    out[row][static_cast<std::size_t>(output)] = static_cast<float>(logit);
  });
  return out;
}

}  // namespace adze::ops::ref
