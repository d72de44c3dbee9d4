// Attention: rotate, attention_prep, attend.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "ops/ref/ref.hpp"

namespace adze::ops::ref {

void rotate(const RopeSpec& rope, std::int32_t position, std::span<float> head) {
  const std::size_t pairs = rope.inverse_frequency.size();
  ADZE_CHECK(2 * pairs <= head.size(), "{} pairs in a head of {}", pairs, head.size());
  for (std::size_t i = 0; i < pairs; ++i) {
    const float angle = static_cast<float>(position) * rope.inverse_frequency[i];
    const double cosine = std::cos(static_cast<double>(angle)) * static_cast<double>(rope.magnitude);
    const double sine = std::sin(static_cast<double>(angle)) * static_cast<double>(rope.magnitude);
    float& first = head[rope.interleaved ? 2 * i : i];
    float& second = head[rope.interleaved ? 2 * i + 1 : i + pairs];
    const auto x = static_cast<double>(first);
    const auto y = static_cast<double>(second);
    first = static_cast<float>(x * cosine - y * sine);
    second = static_cast<float>(x * sine + y * cosine);
  }
}

QueryKeyValue attention_prep(const AttentionPrep& step, const RopeSpec* rope, const Rows& in,
                             std::span<const std::int32_t> positions) {
  const int q_width = step.heads * step.head_size;
  const int kv_width = step.kv_heads * step.head_size;
  const auto head_size = static_cast<std::size_t>(step.head_size);
  const int gates = step.gate < 0 ? 0 : q_width;
  ADZE_CHECK(in.width == q_width + gates + step.stored_parts() * kv_width, "stacked rows of {} for {} + {} + {} x {}",
             in.width, q_width, gates, step.stored_parts(), kv_width);
  ADZE_CHECK(positions.size() == static_cast<std::size_t>(in.count), "{} positions", positions.size());

  const auto normed = [&](std::span<float> values, bool has_norm, const NormSpec& spec) {
    const int group = step.norm_all_heads ? static_cast<int>(values.size()) : step.head_size;
    if (has_norm) normalise(spec, group, values, values);
  };
  const auto rotated = [&](std::span<float> values, std::int32_t position) {
    if (rope == nullptr) return;
    for (std::size_t first = 0; first < values.size(); first += head_size) {
      rotate(*rope, position, values.subspan(first, head_size));
    }
  };
  const int stored = step.stored == AttentionPrep::Stored::nothing ? 0 : in.count;
  QueryKeyValue out{Rows(in.count, q_width), Rows(stored, kv_width), Rows(stored, kv_width), Rows(in.count, gates)};
  for (int row = 0; row < in.count; ++row) {
    const std::int32_t position = positions[static_cast<std::size_t>(row)];
    const float* q = in[row].data();
    for (int h = 0; h < step.heads; ++h) {
      const int at = h * step.head_size;
      std::copy_n(gates == 0 ? q + at : q + 2 * at, step.head_size, out.q[row].data() + at);
      if (gates > 0) std::copy_n(q + 2 * at + step.head_size, step.head_size, out.gate[row].data() + at);
    }
    normed(out.q[row], step.has_q_norm, step.q_norm);
    rotated(out.q[row], position);
    const float scale = position_scale(step, position);
    for (float& x : out.q[row]) x *= scale;
    if (stored == 0) continue;
    const float* k = q + q_width + gates;
    const float* v = step.stored == AttentionPrep::Stored::key_as_value ? k : k + kv_width;
    std::copy_n(k, kv_width, out.k[row].data());
    std::copy_n(v, kv_width, out.v[row].data());
    normed(out.k[row], step.has_k_norm, step.k_norm);
    rotated(out.k[row], position);
    normed(out.v[row], step.has_v_norm, step.v_norm);
  }
  return out;
}

namespace {

double sigmoid(float x) { return 1.0 / (1.0 + std::exp(-static_cast<double>(x))); }

// One head of one row: keys first..position, each `stride` floats apart.
void attend_head(const Attend& step, double sink, const float* q, const float* keys, const float* values, int stride,
                 int first, int position, float* out) {
  std::vector<double> scores;
  double largest = sink;
  for (int j = first; j <= position; ++j) {
    const float* k = keys + static_cast<std::ptrdiff_t>(j) * stride;
    double score = 0.0;
    for (int i = 0; i < step.head_size; ++i) score += static_cast<double>(q[i]) * static_cast<double>(k[i]);
    score *= static_cast<double>(step.scale);
    if (step.softcap != 0.0f) {
      const auto cap = static_cast<double>(step.softcap);
      score = std::tanh(score / cap) * cap;
    }
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double denominator = std::exp(sink - largest);
  std::vector<double> sums(static_cast<std::size_t>(step.head_size), 0.0);
  for (int j = first; j <= position; ++j) {
    const double weight = std::exp(scores[static_cast<std::size_t>(j - first)] - largest);
    const float* v = values + static_cast<std::ptrdiff_t>(j) * stride;
    denominator += weight;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight * static_cast<double>(v[i]);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i] / denominator);
}

}  // namespace

Rows attend(const Attend& step, const Rows& q, std::span<const std::int32_t> positions, const Rows& keys,
            const Rows& values, const Rows* gate) {
  const int kv_width = step.kv_heads * step.head_size;
  ADZE_CHECK(step.kv_heads > 0 && step.heads % step.kv_heads == 0, "{} heads over {}", step.heads, step.kv_heads);
  ADZE_CHECK(q.width == step.heads * step.head_size && keys.width == kv_width && values.width == kv_width,
             "widths {}, {}, {}", q.width, keys.width, values.width);
  ADZE_CHECK(positions.size() == static_cast<std::size_t>(q.count), "{} positions", positions.size());
  ADZE_CHECK((gate != nullptr) == (step.gate >= 0) && (gate == nullptr || gate->width == q.width), "gate {}",
             step.gate);

  std::vector<float> sinks;
  if (step.sinks != nullptr) {
    sinks.resize(static_cast<std::size_t>(step.heads));
    tensor::dequantise_row(step.sinks->type, step.sinks->bytes.data(), sinks.data(), step.heads);
  }
  Rows out(q.count, q.width);
  for (int row = 0; row < q.count; ++row) {
    const int position = positions[static_cast<std::size_t>(row)];
    ADZE_CHECK(position >= 0 && position < keys.count && position < values.count, "position {}", position);
    const int first = step.window == 0 ? 0 : std::max(0, position - step.window + 1);
    for (int h = 0; h < step.heads; ++h) {
      const int kv_first = h / (step.heads / step.kv_heads) * step.head_size;
      const double sink = sinks.empty() ? -std::numeric_limits<double>::infinity()
                                        : static_cast<double>(sinks[static_cast<std::size_t>(h)]);
      attend_head(step, sink, q[row].data() + h * step.head_size, keys.values.data() + kv_first,
                  values.values.data() + kv_first, kv_width, first, position, out[row].data() + h * step.head_size);
    }
    if (gate == nullptr) continue;
    for (std::size_t i = 0; i < out[row].size(); ++i) {
      out[row][i] = static_cast<float>(static_cast<double>(out[row][i]) * sigmoid((*gate)[row][i]));
    }
  }
  return out;
}

}  // namespace adze::ops::ref
