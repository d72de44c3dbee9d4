#include "sample/chain.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.hpp"

namespace adze::sample {
namespace {

constexpr std::size_t kLanes = 16;  // independent accumulators: a reduction the compiler can put into vector registers

constexpr float kExpFloor = -88.0f;

float clamp_exponent(float x) { return x > kExpFloor ? x : kExpFloor; }

// exp(x) for kExpFloor <= x <= 0, as 2^k * e^r with |r| <= ln(2)/2; the polynomial is the one of Cephes' expf. No
// branches; with the clamp in a loop of its own, a loop over it becomes vector code (g++ threads the two otherwise).
float exp_clamped(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float k = (x * 1.44269504f + kRound) - kRound;
  const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  return y * std::bit_cast<float>((static_cast<std::int32_t>(k) + 127) << 23);  // k = -127 gives 0
}

// How many of the candidates, put in the order of `in_order`, it takes for their p to reach `mass`; they come first,
// sorted. Sorts no more than is needed: slices of growing size, since the answer is nearly always small.
template <class InOrder>
std::size_t order_until(Candidates& candidates, double mass, InOrder in_order) {
  std::size_t sorted = 0;
  std::size_t slice = 64;
  double sum = 0;
  while (sorted < candidates.size()) {
    const std::size_t end = std::min(candidates.size(), sorted + slice);
    const auto first = candidates.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(end);
    if (last != candidates.end()) std::nth_element(first, last, candidates.end(), in_order);
    std::sort(first, last, in_order);
    for (; sorted < end; ++sorted) {
      sum += static_cast<double>(candidates[sorted].p);
      if (sum >= mass) return sorted + 1;
    }
    slice *= 4;
  }
  return candidates.size();
}

// All tokens below (1 - top_p) / n together weigh less than 1 - top_p, so the others suffice for a nucleus: of 49,152
// tokens a few hundred are left to sort. The last factor covers rounding.
float negligible(float top_p, std::size_t n) { return (1.0f - top_p) / static_cast<float>(n) * 0.99f; }

float min_p_floor(float max, float min_p) { return max + static_cast<float>(std::log(static_cast<double>(min_p))); }

// Calls `use` with the index of every value >= floor (> -infinity), in order. Where most are below, groups of them are
// passed over by one comparison each.
template <class Use>
void for_each_above(std::span<const float> values, float floor, Use use) {
  floor = std::max(floor, std::numeric_limits<float>::lowest());
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    int above = 0;
    for (std::size_t j = 0; j < kLanes; ++j) above |= static_cast<int>(values[i + j] >= floor);
    if (above == 0) continue;
    for (std::size_t j = 0; j < kLanes; ++j) {
      if (values[i + j] >= floor) use(i + j);
    }
  }
  for (; i < values.size(); ++i) {
    if (values[i] >= floor) use(i);
  }
}

// The race for the highest logit / temperature + noise.
class Race {
 public:
  Race(float max, float temperature, PositionNoise noise)
      : max_(max), inverse_(1.0 / static_cast<double>(temperature)), noise_(noise) {}

  void enter(std::int32_t id, float logit) {
    const double value = (static_cast<double>(logit) - max_) * inverse_;
    if (value + kLargestGumbel < best_) return;
    const std::uint64_t bits = noise_.bits(id);
    if (value + static_cast<double>(gumbel_bound(bits)) < best_) return;
    const double noisy = value + gumbel(bits);
    if (noisy < best_ || (noisy == best_ && id > best_id_)) return;
    best_ = noisy;
    best_id_ = id;
  }
  std::int32_t winner() const { return best_id_; }

 private:
  double max_;
  double inverse_;
  PositionNoise noise_;
  double best_ = -std::numeric_limits<double>::infinity();
  std::int32_t best_id_ = std::numeric_limits<std::int32_t>::max();
};

float max_logit(const Candidates& candidates) {
  float max = -std::numeric_limits<float>::infinity();
  for (const Candidate& c : candidates) max = std::max(max, c.logit);
  return max;
}

}  // namespace

void apply_penalties(std::span<float> row, std::span<const std::int32_t> recent, const SamplerParameters& parameters,
                     std::vector<std::int32_t>& counts) {
  for (const std::int32_t id : recent) ++counts[static_cast<std::size_t>(id)];
  for (const std::int32_t id : recent) {
    const auto i = static_cast<std::size_t>(id);
    if (counts[i] == 0) continue;  // seen already
    float logit = row[i];
    logit = logit > 0 ? logit / parameters.repetition_penalty : logit * parameters.repetition_penalty;
    logit -= static_cast<float>(counts[i]) * parameters.frequency_penalty + parameters.presence_penalty;
    row[i] = logit;
    counts[i] = 0;
  }
}

// "Don't repeat yourself", as its author p-e-w defines it (text-generation-webui pull request 5677). The repeats are
// found with the Z algorithm on the reversed history r: lengths[i] is how long r[i..] and r agree, so the text that
// ends i tokens ago ends like the text now, and r[i - 1] is what came next then. The plain search is quadratic when one
// token repeats.
void apply_dry(std::span<float> row, std::span<const std::int32_t> recent, const SamplerParameters& parameters,
               std::span<const std::uint8_t> breakers, std::vector<std::int32_t>& lengths,
               std::vector<std::int32_t>& longest) {
  const auto n = static_cast<std::int32_t>(recent.size());
  const auto reversed = [&](std::int32_t i) { return recent[static_cast<std::size_t>(n - 1 - i)]; };
  const auto breaks = [&](std::int32_t token) { return breakers[static_cast<std::size_t>(token)] != 0; };
  std::int32_t reach = 0;  // tokens at the end that a repeat may cover: up to the last breaker
  while (reach < n && !breaks(reversed(reach))) ++reach;
  if (reach < parameters.dry_allowed_length) return;

  lengths.resize(recent.size());
  std::int32_t left = 0;
  std::int32_t right = 0;  // r[left, right) is the match found so far that ends furthest
  for (std::int32_t i = 1; i < n; ++i) {
    std::int32_t length = i < right ? std::min(right - i, lengths[static_cast<std::size_t>(i - left)]) : 0;
    while (i + length < n && reversed(length) == reversed(i + length)) ++length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    lengths[static_cast<std::size_t>(i)] = length;
    const std::int32_t next = reversed(i - 1);
    const std::int32_t repeat = std::min(length, reach);
    if (repeat < parameters.dry_allowed_length || breaks(next)) continue;
    auto& best = longest[static_cast<std::size_t>(next)];
    best = std::max(best, repeat);
  }
  for (const std::int32_t id : recent) {
    const auto t = static_cast<std::size_t>(id);
    if (longest[t] == 0) continue;
    const double exponent = longest[t] - parameters.dry_allowed_length;
    const double penalty = parameters.dry_multiplier * std::pow(static_cast<double>(parameters.dry_base), exponent);
    row[t] -= static_cast<float>(std::min(penalty, 1e30));  // stays finite: a penalty, not a ban
    longest[t] = 0;
  }
}

RowScan scan_row(const Row& scanned) {
  const std::span<const float> row = scanned.logits;
  if (!scanned.maxima.empty()) {
    return {.max = *std::max_element(scanned.maxima.begin(), scanned.maxima.end()), .finite = true};
  }
  std::array<float, kLanes> max{};
  std::array<float, kLanes> nothing{};  // sums of 0 * x: NaN as soon as one x is not finite
  max.fill(-std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const float x = row[i + j];
      max[j] = x > max[j] ? x : max[j];
      nothing[j] += x * 0.0f;
    }
  }
  for (; i < row.size(); ++i) {
    max[0] = row[i] > max[0] ? row[i] : max[0];
    nothing[0] += row[i] * 0.0f;
  }
  RowScan scan{.max = *std::max_element(max.begin(), max.end()), .finite = true};
  for (const float x : nothing) scan.finite = scan.finite && x == 0.0f;
  return scan;
}

std::int32_t first_index_of(const Row& row, float value) {
  const auto block = std::find(row.maxima.begin(), row.maxima.end(), value) - row.maxima.begin();
  const std::span<const float> rest = row.logits.subspan(static_cast<std::size_t>(block) * kMaximaBlock);
  const auto found = std::find(rest.begin(), rest.end(), value);
  ADZE_CHECK(found != rest.end(), "the maximum of a row is not in it");
  return static_cast<std::int32_t>(row.logits.size() - rest.size()) + static_cast<std::int32_t>(found - rest.begin());
}

// One pass with a rising threshold, the k-th best so far: nearly every group of logits is dismissed by one comparison,
// or unread by its maximum. An equal logit further on loses by its id, so `>` is right.
void take_top_k(const Row& from, int k, Candidates& out) {
  const std::span<const float> row = from.logits;
  out.clear();
  const auto want = static_cast<std::size_t>(k);
  const std::size_t capacity = std::max<std::size_t>(2 * want, 256);
  float threshold = -std::numeric_limits<float>::infinity();
  const auto keep_best = [&] {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(want - 1), out.end(), before);
    out.resize(want);
    threshold = out.back().logit;
  };
  const auto offer = [&](std::size_t i) {
    if (!(row[i] > threshold)) return;
    out.push_back({.id = static_cast<std::int32_t>(i), .logit = row[i]});
    if (out.size() == capacity) keep_best();
  };
  for (std::size_t b = 0; b < from.maxima.size(); ++b) {
    if (!(from.maxima[b] > threshold)) continue;
    const std::size_t end = std::min(row.size(), (b + 1) * kMaximaBlock);
    for (std::size_t i = b * kMaximaBlock; i < end; ++i) offer(i);
  }
  std::size_t i = from.maxima.empty() ? 0 : row.size();
  for (; i + kLanes <= row.size(); i += kLanes) {
    int above = 0;
    for (std::size_t j = 0; j < kLanes; ++j) above |= static_cast<int>(row[i + j] > threshold);
    if (above == 0) continue;
    for (std::size_t j = 0; j < kLanes; ++j) offer(i + j);
  }
  for (; i < row.size(); ++i) offer(i);
  if (out.size() > want) keep_best();
  std::sort(out.begin(), out.end(), before);
}

float exp_negative(float x) { return exp_clamped(clamp_exponent(x)); }

void take_all(std::span<const float> row, Candidates& out) {
  out.clear();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == -std::numeric_limits<float>::infinity()) continue;
    out.push_back({.id = static_cast<std::int32_t>(i), .logit = row[i]});
  }
}

// One pass of vector code.
double weigh(std::span<const float> row, float max, std::span<float> weights) {
  for (std::size_t i = 0; i < row.size(); ++i) weights[i] = clamp_exponent(row[i] - max);
  for (float& w : weights) w = exp_clamped(w);
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) sums[j] += static_cast<double>(weights[i + j]);
  }
  for (; i < row.size(); ++i) sums[0] += static_cast<double>(weights[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Only tokens that can matter become candidates.
void take_top_p(std::span<const float> row, float max, float top_p, std::vector<float>& weights, Candidates& out) {
  const double sum = weigh(row, max, weights);
  const auto scale = static_cast<float>(1.0 / sum);
  const float floor = negligible(top_p, row.size()) * static_cast<float>(sum);
  out.clear();
  for_each_above(weights, floor, [&](std::size_t t) {
    out.push_back({.id = static_cast<std::int32_t>(t), .logit = row[t], .p = weights[t] * scale});
  });
  out.resize(order_until(out, top_p, before));
}

void take_min_p(std::span<const float> row, float max, float min_p, Candidates& out) {
  out.clear();
  for_each_above(row, min_p_floor(max, min_p),
                 [&](std::size_t t) { out.push_back({.id = static_cast<std::int32_t>(t), .logit = row[t]}); });
}

double normalise(Candidates& candidates) {
  const float max = max_logit(candidates);
  double sum = 0;
  for (Candidate& c : candidates) {
    c.p = exp_negative(c.logit - max);
    sum += static_cast<double>(c.p);
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (Candidate& c : candidates) c.p *= scale;
  return static_cast<double>(max) + std::log(sum);
}

void keep_typical(Candidates& candidates, float typical_p) {
  const double log_sum = normalise(candidates);
  double entropy = 0;
  for (const Candidate& c : candidates) {
    entropy += static_cast<double>(c.p) * (log_sum - static_cast<double>(c.logit));
  }
  const double typical_logit = log_sum - entropy;
  const auto distance = [typical_logit](const Candidate& c) {
    return std::abs(static_cast<double>(c.logit) - typical_logit);
  };
  candidates.resize(order_until(candidates, typical_p, [&](const Candidate& a, const Candidate& b) {
    const double da = distance(a);
    const double db = distance(b);
    return da != db ? da < db : a.id < b.id;
  }));
}

void keep_top_p(Candidates& candidates, float top_p) {
  normalise(candidates);
  const float floor = negligible(top_p, candidates.size());
  std::erase_if(candidates, [floor](const Candidate& c) { return c.p < floor; });
  candidates.resize(order_until(candidates, top_p, before));
}

void keep_min_p(Candidates& candidates, float min_p) {
  const float floor = min_p_floor(max_logit(candidates), min_p);
  std::erase_if(candidates, [floor](const Candidate& c) { return c.logit < floor; });
}

std::int32_t draw(const Candidates& candidates, float temperature, PositionNoise noise) {
  ADZE_CHECK(!candidates.empty(), "nothing to draw from");
  Race race(max_logit(candidates), temperature, noise);
  for (const Candidate& c : candidates) race.enter(c.id, c.logit);
  return race.winner();
}

std::int32_t draw_from_row(std::span<const float> row, float max, float temperature, PositionNoise noise) {
  Race race(max, temperature, noise);
  // The likeliest token first: it sets a mark that nearly all others fail at the first or second comparison.
  const std::int32_t likeliest = first_index_of(Row{row}, max);
  race.enter(likeliest, max);
  for (std::size_t i = 0; i < row.size(); ++i) race.enter(static_cast<std::int32_t>(i), row[i]);
  return race.winner();
}

}  // namespace adze::sample
