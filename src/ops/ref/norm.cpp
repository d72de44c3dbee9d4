// Normalisations: norm, residual_norm.
#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "ops/ref/ref.hpp"

namespace adze::ops::ref {
namespace {

std::vector<float> weight_values(const NormSpec& spec) {
  std::vector<float> values;
  if (spec.weight != nullptr) {
    values.resize(static_cast<std::size_t>(spec.weight->shape.elements()));
    tensor::dequantise_row(spec.weight->type, spec.weight->bytes.data(), values.data(),
                           static_cast<std::int64_t>(values.size()));
  }
  return values;
}

// out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w, with mean = 0 for rms.
void normalise_group(const NormSpec& spec, std::span<const float> weight, std::span<const float> in,
                     std::span<float> out) {
  const auto count = static_cast<double>(in.size());
  double mean = 0.0;
  switch (spec.kind) {
    case NormSpec::Kind::none: std::ranges::copy(in, out.begin()); return;
    case NormSpec::Kind::rms: break;
    case NormSpec::Kind::layer:
      for (const float x : in) mean += static_cast<double>(x);
      mean /= count;
      break;
  }
  double sum_of_squares = 0.0;
  for (const float x : in) {
    const double centred = static_cast<double>(x) - mean;
    sum_of_squares += centred * centred;
  }
  const double inverse = 1.0 / std::sqrt(sum_of_squares / count + static_cast<double>(spec.epsilon));
  for (std::size_t i = 0; i < in.size(); ++i) {
    double factor = weight.empty() ? 1.0 : static_cast<double>(weight[i]);
    if (spec.one_plus) factor += 1.0;
    out[i] = static_cast<float>((static_cast<double>(in[i]) - mean) * inverse * factor);
  }
}

}  // namespace

void normalise(const NormSpec& spec, int group, std::span<const float> in, std::span<float> out) {
  const std::vector<float> weight = weight_values(spec);
  const auto size = static_cast<std::size_t>(group);
  ADZE_CHECK(group > 0 && in.size() % size == 0 && in.size() == out.size(), "{} values in groups of {}", in.size(),
             group);
  ADZE_CHECK(weight.empty() || weight.size() == size, "a norm weight of {} for groups of {}", weight.size(), group);
  ADZE_CHECK(!spec.one_plus || !weight.empty(), "1 + weight without a weight");
  for (std::size_t first = 0; first < in.size(); first += size) {
    normalise_group(spec, weight, in.subspan(first, size), out.subspan(first, size));
  }
}

void normalise(const NormSpec& spec, std::span<const float> in, std::span<float> out) {
  const auto group = spec.weight != nullptr ? spec.weight->shape.elements() : static_cast<std::int64_t>(in.size());
  normalise(spec, static_cast<int>(group), in, out);
}

Rows norm(const Norm& step, const Rows& in) {
  Rows out(in.count, in.width);
  for (int row = 0; row < in.count; ++row) normalise(step.norm, in[row], out[row]);
  return out;
}

Rows residual_norm(const ResidualNorm& step, Rows& residual, std::span<const Rows* const> addends) {
  ADZE_CHECK(addends.size() == step.addends.size(), "{} addends", addends.size());
  for (int row = 0; row < residual.count; ++row) {
    const std::span<float> h = residual[row];
    std::vector<double> sum(h.begin(), h.end());
    for (std::size_t a = 0; a < addends.size(); ++a) {
      ADZE_CHECK(addends[a]->width == residual.width && addends[a]->count == residual.count, "addend {}", a);
      const std::span<const float> x = (*addends[a])[row];
      std::vector<float> term(x.begin(), x.end());
      if (step.addends[a].has_norm) normalise(step.addends[a].norm, x, term);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(term[i]);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) h[i] = static_cast<float>(sum[i] * static_cast<double>(step.scale));
  }
  Rows out(residual.count, residual.width);
  for (int row = 0; row < residual.count; ++row) normalise(step.norm, residual[row], out[row]);
  return out;
}

}  // namespace adze::ops::ref
