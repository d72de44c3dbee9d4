// That the sampler draws the processed softmax: 10^6 draws over positions and seeds, against the chain's definition
// written out a second time, slowly and in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "sample/sampler.hpp"

namespace adze::sample {
namespace {

using Distribution = std::vector<double>;  // by token; 0: cannot be drawn

void normalise(Distribution& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
}

// Keeps the first tokens in the order of `key` (ascending, then by id) until their mass reaches `mass`.
void keep_until(Distribution& p, double mass, const std::function<double(std::size_t)>& key) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) < key(b); });
  double sum = 0;
  for (const std::size_t i : order) {
    const bool keep = sum < mass;
    sum += p[i];
    if (!keep) p[i] = 0;
  }
  normalise(p);
}

Distribution expected(std::span<const float> logits, const SamplerParameters& s, std::span<const std::int32_t> history,
                      TokenMask mask) {
  std::vector<double> l(logits.begin(), logits.end());
  for (const auto& [id, bias] : s.logit_bias) l[static_cast<std::size_t>(id)] += static_cast<double>(bias);
  std::map<std::int32_t, int> counts;
  const std::size_t seen = std::min(history.size(), static_cast<std::size_t>(s.penalty_window));
  for (const std::int32_t id : history.last(seen)) ++counts[id];
  for (const auto& [id, count] : counts) {
    double& x = l[static_cast<std::size_t>(id)];
    const auto r = static_cast<double>(s.repetition_penalty);
    x = (x > 0 ? x / r : x * r) - count * static_cast<double>(s.frequency_penalty) -
        static_cast<double>(s.presence_penalty);
  }
  Distribution p;
  for (std::size_t i = 0; i < l.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const bool out = std::ranges::count(s.banned, id) > 0 ||
                     (!s.allowed.empty() && std::ranges::count(s.allowed, id) == 0) ||
                     (!mask.empty() && (mask.words[i / 32] >> (i % 32) & 1) == 0);
    p.push_back(out ? 0.0 : std::exp(l[i]));
  }
  normalise(p);
  const auto likeliest = [&](std::size_t i) { return -l[i]; };
  if (s.top_k > 0) {
    std::vector<double> sorted = p;
    std::ranges::sort(sorted, std::greater());
    const double least = sorted[static_cast<std::size_t>(std::min<std::ptrdiff_t>(s.top_k, std::ssize(p)) - 1)];
    for (double& x : p) x = x < least ? 0 : x;
    normalise(p);
  }
  if (s.typical_p < 1) {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    const Distribution before = p;
    keep_until(p, static_cast<double>(s.typical_p),
               [&](std::size_t i) { return std::abs(-std::log(before[i]) - entropy); });
  }
  if (s.top_p < 1) keep_until(p, static_cast<double>(s.top_p), likeliest);
  const double least = *std::ranges::max_element(p) * static_cast<double>(s.min_p);
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = p[i] == 0 || p[i] < least ? 0 : std::exp(l[i] / static_cast<double>(s.temperature));
  }
  normalise(p);
  return p;
}

// The value that chi-square with so many degrees of freedom exceeds once in a million (Wilson and Hilferty 1931).
double once_in_a_million(std::size_t freedom) {
  constexpr double kNormal = 4.7534;
  const double k = 2.0 / (9.0 * static_cast<double>(freedom));
  return static_cast<double>(freedom) * std::pow(1.0 - k + kNormal * std::sqrt(k), 3);
}

struct Case {
  const char* name;
  std::function<void(SamplerParameters&)> set;
  std::vector<std::uint32_t> mask{};
};

class Distributions : public testing::Test {
 protected:
  // 16 logits without ties, of which the chain's stages cut some; not near any of their edges.
  std::vector<float> logits{1.3f, -0.4f, 2.1f,  0.2f, -1.9f, 0.9f,  -3.0f, 1.7f,
                            0.6f, -0.8f, -5.0f, 1.1f, 2.4f,  -2.2f, 0.0f,  -1.2f};
  std::vector<std::int32_t> history{12, 2, 2, 7, 3, 12, 4, 12};
};

TEST_F(Distributions, AreTheProcessedSoftmax) {
  const std::vector<Case> cases{
      {"plain", [](auto&) {}},
      {"cold", [](auto& p) { p.temperature = 0.6f; }},
      {"hot", [](auto& p) { p.temperature = 1.8f; }},
      {"top-k", [](auto& p) { p.top_k = 5; }},
      {"top-p", [](auto& p) { p.top_p = 0.85f; }},
      {"min-p", [](auto& p) { p.min_p = 0.12f; }},
      {"typical", [](auto& p) { p.typical_p = 0.7f; }},
      {"penalties",
       [](auto& p) {
         p.repetition_penalty = 1.4f;
         p.presence_penalty = 0.3f;
         p.frequency_penalty = 0.2f;
         p.penalty_window = 6;
       }},
      {"mask and lists",
       [](auto& p) {
         p.banned = {12};
         p.allowed = {0, 2, 3, 5, 7, 8, 12, 14};
         p.logit_bias = {{3, 1.5f}, {14, -0.5f}};
       },
       {0xfeffu}},
      {"everything",
       [](auto& p) {
         p.temperature = 0.8f;
         p.top_k = 12;
         p.typical_p = 0.95f;
         p.top_p = 0.9f;
         p.min_p = 0.05f;
         p.repetition_penalty = 1.2f;
         p.logit_bias = {{9, 2.0f}};
       }},
  };
  constexpr int kSeeds = 20;
  constexpr int kPositions = 5000;
  const int vocabulary = static_cast<int>(logits.size());
  Scratch scratch(vocabulary, 64);
  for (const Case& c : cases) {
    std::vector<int> counts(logits.size());
    SamplerParameters parameters;
    parameters.penalty_window = 64;
    c.set(parameters);
    const SampleOptions options{.mask = {c.mask}};
    for (int seed = 0; seed < kSeeds; ++seed) {
      parameters.seed = static_cast<std::uint64_t>(seed) * 1000003;
      const auto sampler = Sampler::create(parameters, vocabulary).value();
      for (int position = 0; position < kPositions; ++position) {
        const auto token = sampler.sample(logits, history, position, scratch, options);
        ++counts[static_cast<std::size_t>(token.value())];
      }
    }
    const Distribution want = expected(logits, parameters, history, options.mask);
    double statistic = 0;
    std::size_t possible = 0;
    double rare_mean = 0;  // tokens that come too seldom for the statistic count as one
    int rare_count = 0;
    const auto add = [&](double mean, int count) {
      ++possible;
      statistic += std::pow(count - mean, 2) / mean;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (want[i] == 0) {
        EXPECT_EQ(counts[i], 0) << c.name << ": token " << i << " cannot be drawn";
        continue;
      }
      const double mean = want[i] * kSeeds * kPositions;
      if (mean >= 10) {
        add(mean, counts[i]);
      } else {
        rare_mean += mean;
        rare_count += counts[i];
      }
    }
    if (rare_mean >= 10) add(rare_mean, rare_count);
    ASSERT_GT(possible, 1u) << c.name;
    EXPECT_LT(statistic, once_in_a_million(possible - 1)) << c.name;
  }
}

// The test's own teeth: a temperature 3 % off is found out.
TEST_F(Distributions, ASmallErrorIsFound) {
  constexpr int kDraws = 1'000'000 / 10;
  const int vocabulary = static_cast<int>(logits.size());
  Scratch scratch(vocabulary, 64);
  SamplerParameters parameters;
  const Distribution want = expected(logits, parameters, {}, {});
  parameters.temperature = 1.03f;
  const auto sampler = Sampler::create(parameters, vocabulary).value();
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(*sampler.sample(logits, {}, i, scratch))];
  double statistic = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    statistic += std::pow(counts[i] - want[i] * kDraws, 2) / (want[i] * kDraws);
  }
  EXPECT_GT(statistic, once_in_a_million(counts.size() - 1));
}

}  // namespace
}  // namespace adze::sample
