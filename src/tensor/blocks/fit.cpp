#include "tensor/blocks/fit.hpp"

#include "base/check.hpp"
#include "tensor/blocks/k_scales.hpp"
#include "tensor/blocks/rounding.hpp"

namespace adze::tensor::blocks {
namespace {

// Sums of a candidate set of levels l over values x with weights w.
struct Moments {
  float xl = 0.0f;  // sum w * x * l
  float ll = 0.0f;  // sum w * l * l
  void add(float w, float x, int level) {
    const auto l = static_cast<float>(level);
    xl += w * x * l;
    ll += w * l * l;
  }
  Moments without(float w, float x, int level) const {
    const auto l = static_cast<float>(level);
    return {xl - w * x * l, ll - w * l * l};
  }
  // The scale xl / ll leaves an error of (sum w x^2) - xl^2 / ll: better is what leaves less.
  bool better_than(const Moments& other) const { return xl * xl * other.ll > other.xl * other.xl * ll; }
  float scale() const { return ll > 0.0f ? xl / ll : 0.0f; }
};

float extreme_of(const float* in, int count) {
  float extreme = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (std::fabs(in[i]) > std::fabs(extreme)) extreme = in[i];
  }
  return extreme;
}

constexpr int kDescentRounds = 5;

int clamped_level(float scaled, int half_range) { return std::clamp(nearest_int(scaled), -half_range, half_range - 1); }

// Packs the scales under block.d and block.dmin, and takes the levels once more, against the scales as stored; a group
// whose stored scale is 0 keeps those of its own fit.
void store_scales(const float* in, const std::array<ScaleAndMinimum, 8>& scales, int top_level,
                  AffineSuperBlock& block) {
  pack_k_scales(scales.data(), block.scales.data());
  for (std::size_t group = 0; group < 8; ++group) {
    const float d = f16_to_f32(block.d) * static_cast<float>(scales[group].scale);
    if (d == 0.0f) continue;
    const float minimum = f16_to_f32(block.dmin) * static_cast<float>(scales[group].minimum);
    for (std::size_t i = 32 * group; i < 32 * (group + 1); ++i) {
      block.levels[i] = static_cast<std::uint8_t>(std::clamp(nearest_int((in[i] + minimum) / d), 0, top_level));
    }
  }
}

}  // namespace

float fit_symmetric_by_scan(const float* in, const float* weights, int count, int half_range, std::uint8_t* levels) {
  const float extreme = extreme_of(in, count);
  if (std::fabs(extreme) < kZeroGroup) {
    std::fill(levels, levels + count, std::uint8_t{0});
    return 0.0f;
  }
  const auto measure = [&](float inverse) {
    Moments moments;
    for (int i = 0; i < count; ++i) moments.add(weights[i], in[i], clamped_level(inverse * in[i], half_range));
    return moments;
  };
  const auto keep = [&](float inverse) {
    for (int i = 0; i < count; ++i) {
      levels[i] = static_cast<std::uint8_t>(half_range + clamped_level(inverse * in[i], half_range));
    }
  };
  float inverse = -static_cast<float>(half_range) / extreme;
  Moments moments = measure(inverse);
  keep(inverse);
  float scale = moments.ll != 0.0f ? moments.xl / moments.ll : 0.0f;
  float best = scale * moments.xl;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    inverse = -(static_cast<float>(half_range) + 0.1f * static_cast<float>(step)) / extreme;
    moments = measure(inverse);
    if (moments.ll > 0.0f && moments.xl * moments.xl > best * moments.ll) {
      keep(inverse);
      scale = moments.xl / moments.ll;
      best = scale * moments.xl;
    }
  }
  return scale;
}

float fit_symmetric_by_descent(const float* in, int count, int half_range, std::uint8_t* levels) {
  ADZE_CHECK(count <= kMaxGroup, "a group of {} values", count);
  const float extreme = extreme_of(in, count);
  if (std::fabs(extreme) < kZeroGroup) {
    std::fill(levels, levels + count, std::uint8_t{0});
    return 0.0f;
  }
  const float inverse = -static_cast<float>(half_range) / extreme;
  std::array<int, kMaxGroup> chosen{};
  Moments total;
  for (int i = 0; i < count; ++i) {
    chosen[static_cast<std::size_t>(i)] = clamped_level(inverse * in[i], half_range);
    total.add(in[i] * in[i], in[i], chosen[static_cast<std::size_t>(i)]);
  }
  bool changed = true;
  for (int round = 0; round < kDescentRounds && changed; ++round) {
    changed = false;
    for (int i = 0; i < count; ++i) {
      // The sums without value i give the scale at which its own level would be chosen.
      int& current = chosen[static_cast<std::size_t>(i)];
      const float w = in[i] * in[i];
      Moments rest = total.without(w, in[i], current);
      if (!(rest.xl > 0.0f)) continue;
      const int level = clamped_level(in[i] * rest.ll / rest.xl, half_range);
      if (level == current) continue;
      rest.add(w, in[i], level);
      if (rest.ll > 0.0f && rest.better_than(total)) {
        current = level;
        total = rest;
        changed = true;
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    levels[i] = static_cast<std::uint8_t>(chosen[static_cast<std::size_t>(i)] + half_range);
  }
  return total.scale();
}

float fit_unsigned(const float* in, const float* weights, int count, int top_level, std::uint8_t* levels) {
  float highest = 0.0f;
  for (int i = 0; i < count; ++i) highest = std::max(highest, in[i]);
  if (highest < kZeroGroup) {
    std::fill(levels, levels + count, std::uint8_t{0});
    return 0.0f;
  }
  const auto top = static_cast<float>(top_level);
  const auto level = [&](float scaled) { return std::min(top_level, nearest_int(scaled)); };
  const auto error = [&](float inverse) {
    const float scale = 1.0f / inverse;
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float difference = in[i] - scale * static_cast<float>(level(inverse * in[i]));
      sum += weights[i] * difference * difference;
    }
    return sum;
  };
  float inverse = top / highest;
  float best_error = error(inverse);
  for (int step = -4; step <= 4; ++step) {
    if (step == 0) continue;
    const float candidate = (0.1f * static_cast<float>(step) + top) / highest;
    const float candidate_error = error(candidate);
    if (candidate_error < best_error) {
      best_error = candidate_error;
      inverse = candidate;
    }
  }
  Moments total;
  for (int i = 0; i < count; ++i) {
    levels[i] = static_cast<std::uint8_t>(level(inverse * in[i]));
    total.add(weights[i], in[i], levels[i]);
  }
  bool changed = true;
  for (int round = 0; round < kDescentRounds && changed; ++round) {
    changed = false;
    for (int i = 0; i < count; ++i) {
      Moments rest = total.without(weights[i], in[i], levels[i]);
      if (!(rest.xl > 0.0f && rest.ll > 0.0f)) continue;
      const int moved = level(in[i] * rest.ll / rest.xl);
      if (moved == levels[i]) continue;
      rest.add(weights[i], in[i], moved);
      if (rest.better_than(total)) {
        levels[i] = static_cast<std::uint8_t>(moved);
        total = rest;
        changed = true;
      }
    }
  }
  return total.scale();
}

AffineFit fit_affine(const float* in, const float* weights, int count, const AffineSearch& search,
                     std::uint8_t* levels) {
  ADZE_CHECK(count <= kMaxGroup, "a group of {} values", count);
  float low = in[0];
  float high = in[0];
  float sum_w = 0.0f;
  float sum_x = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (in[i] < low) low = in[i];
    if (in[i] > high) high = in[i];
    sum_w += weights[i];
    sum_x += weights[i] * in[i];
  }
  if (low > 0.0f) low = 0.0f;
  if (high == low) {
    std::fill(levels, levels + count, std::uint8_t{0});
    return {0.0f, -low};
  }
  const auto top = static_cast<float>(search.top_level);
  const float first_inverse = top / (high - low);
  AffineFit best{1.0f / first_inverse, low};  // here the minimum is the value of level 0, negated only on return
  const auto level = [&](float inverse, int i) {
    return static_cast<std::uint8_t>(std::clamp(nearest_int(inverse * (in[i] - best.minimum)), 0, search.top_level));
  };
  const auto error = [&](float scale, float minimum, const std::uint8_t* chosen) {
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float difference = scale * static_cast<float>(chosen[i]) + minimum - in[i];
      sum += weights[i] * (search.absolute_error ? std::fabs(difference) : difference * difference);
    }
    return sum;
  };
  for (int i = 0; i < count; ++i) levels[i] = level(first_inverse, i);
  float best_error = error(best.scale, best.minimum, levels);

  std::array<std::uint8_t, kMaxGroup> candidate{};
  for (int step = 0; step < search.candidates; ++step) {
    const float inverse = (search.first_offset + search.step * static_cast<float>(step) + top) / (high - best.minimum);
    float sum_l = 0.0f;
    float sum_ll = 0.0f;
    float sum_xl = 0.0f;
    for (int i = 0; i < count; ++i) {
      candidate[static_cast<std::size_t>(i)] = level(inverse, i);
      const auto l = static_cast<float>(candidate[static_cast<std::size_t>(i)]);
      sum_l += weights[i] * l;
      sum_ll += weights[i] * l * l;
      sum_xl += weights[i] * l * in[i];
    }
    const float determinant = sum_w * sum_ll - sum_l * sum_l;
    if (!(determinant > 0.0f)) continue;
    AffineFit fit{(sum_w * sum_xl - sum_x * sum_l) / determinant, (sum_ll * sum_x - sum_l * sum_xl) / determinant};
    if (fit.minimum > 0.0f) fit = {sum_xl / sum_ll, 0.0f};
    const float fit_error = error(fit.scale, fit.minimum, candidate.data());
    if (fit_error < best_error) {
      std::copy_n(candidate.begin(), count, levels);
      best_error = fit_error;
      best = fit;
    }
  }
  return {best.scale, -best.minimum};
}

AffineSuperBlock fit_affine_super_block(const float* in, const AffineSearch& search) {
  std::array<AffineFit, 8> fits;
  AffineSuperBlock block;
  float max_scale = 0.0f;
  float max_minimum = 0.0f;
  for (std::size_t group = 0; group < 8; ++group) {
    const float* x = in + 32 * group;
    const float rms = std::sqrt(sum_of_squares(x, 32) / 32.0f);
    std::array<float, 32> weights;
    for (std::size_t i = 0; i < 32; ++i) weights[i] = rms + std::fabs(x[i]);
    fits[group] = fit_affine(x, weights.data(), 32, search, block.levels.data() + 32 * group);
    max_scale = std::max(max_scale, fits[group].scale);
    max_minimum = std::max(max_minimum, fits[group].minimum);
  }

  const float inverse_scale = max_scale > 0.0f ? 63.0f / max_scale : 0.0f;
  const float inverse_minimum = max_minimum > 0.0f ? 63.0f / max_minimum : 0.0f;
  const auto six_bits = [](float scaled) {
    return std::min<std::uint8_t>(63, static_cast<std::uint8_t>(nearest_int(scaled)));
  };
  std::array<ScaleAndMinimum, 8> scales;
  for (std::size_t group = 0; group < 8; ++group) {
    scales[group] = {six_bits(inverse_scale * fits[group].scale), six_bits(inverse_minimum * fits[group].minimum)};
  }
  block.d = f32_to_f16(max_scale / 63.0f);
  block.dmin = f32_to_f16(max_minimum / 63.0f);
  store_scales(in, scales, search.top_level, block);
  return block;
}

AffineSuperBlock fit_affine_super_block(const float* in, const float* importance, int top_level) {
  AffineSuperBlock block;
  std::array<float, 8> group_weights{};
  std::array<float, 8> group_scales;
  std::array<float, 8> group_minima;
  const float spread = 2.0f * sum_of_squares(in, 256) / 256.0f;
  for (std::size_t group = 0; group < 8; ++group) {
    std::array<float, 32> weights;
    weigh(in + 32 * group, importance + 32 * group, 32, spread, weights.data());
    for (const float w : weights) group_weights[group] += w;
    const AffineFit fit =
        fit_affine(in + 32 * group, weights.data(), 32, weighted_search(top_level), block.levels.data() + 32 * group);
    group_scales[group] = fit.scale;
    group_minima[group] = fit.minimum;
  }
  std::array<std::uint8_t, 8> scale_levels;
  std::array<std::uint8_t, 8> minimum_levels;
  block.d = f32_to_f16(fit_unsigned(group_scales.data(), group_weights.data(), 8, 63, scale_levels.data()));
  block.dmin = f32_to_f16(fit_unsigned(group_minima.data(), group_weights.data(), 8, 63, minimum_levels.data()));
  std::array<ScaleAndMinimum, 8> scales;
  for (std::size_t group = 0; group < 8; ++group) scales[group] = {scale_levels[group], minimum_levels[group]};
  store_scales(in, scales, top_level, block);
  return block;
}

void weigh(const float* in, const float* importance, int count, float spread, float* weights) {
  for (int i = 0; i < count; ++i) weights[i] = importance[i] * std::sqrt(spread + in[i] * in[i]);
}

void weigh_by_square(const float* in, int count, float* weights) {
  for (int i = 0; i < count; ++i) weights[i] = in[i] * in[i];
}

float sum_of_squares(const float* in, std::int64_t count) {
  float sum = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) sum += in[i] * in[i];
  return sum;
}

}  // namespace adze::tensor::blocks
