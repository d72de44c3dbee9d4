#include "sample/log_probabilities.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/limits.hpp"
#include "sample/sampler.hpp"

namespace adze::sample {
namespace {

std::vector<float> noise_row(int vocabulary, std::uint64_t seed) {
  std::vector<float> row(static_cast<std::size_t>(vocabulary));
  const PositionNoise noise(seed, 0);
  for (int i = 0; i < vocabulary; ++i) {
    row[static_cast<std::size_t>(i)] = static_cast<float>(gumbel(noise.bits(i))) * 2.0f - 7.0f;
  }
  return row;
}

TEST(LogProbabilities, AreTheLogarithmOfTheSoftmax) {
  for (const int vocabulary : {1, 15, 16, 17, 1000, 49152}) {
    const std::vector<float> row = noise_row(vocabulary, 5);
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    std::vector<std::int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[size_t(a)] > row[size_t(b)]; });
    Scratch scratch(vocabulary, 1);
    LogProbabilities got;
    for (const int top : {0, 1, 5, limits::kMaxTopLogprobs}) {
      const std::int32_t drawn = vocabulary / 2;
      log_probabilities(Row{row}, drawn, top, scratch, got);
      const auto want = [&](std::int32_t id) {
        return static_cast<double>(row[static_cast<std::size_t>(id)]) - std::log(sum);
      };
      EXPECT_EQ(got.drawn.id, drawn);
      EXPECT_NEAR(static_cast<double>(got.drawn.log_probability), want(drawn), 2e-6);
      ASSERT_EQ(got.top.size(), static_cast<std::size_t>(std::min(top, vocabulary)));
      for (std::size_t i = 0; i < got.top.size(); ++i) {
        EXPECT_EQ(got.top[i].id, order[i]);
        EXPECT_NEAR(static_cast<double>(got.top[i].log_probability), want(order[i]), 2e-6);
        EXPECT_LE(got.top[i].log_probability, 0.0f);
      }
    }
  }
}

TEST(LogProbabilities, TiesGoToTheLowerId) {
  std::vector<float> row(300, -1.0f);
  row[250] = row[20] = row[130] = 2.0f;
  Scratch scratch(300, 1);
  LogProbabilities got;
  log_probabilities(Row{row}, 0, 5, scratch, got);
  std::vector<std::int32_t> ids;
  for (const auto& t : got.top) ids.push_back(t.id);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{20, 130, 250, 0, 1}));
}

TEST(LogProbabilities, DoNotDependOnMaximaNorOnTheRequest) {
  const std::vector<float> row = noise_row(5000, 9);
  std::vector<float> maxima;
  for (std::size_t i = 0; i < row.size(); i += kMaximaBlock) {
    maxima.push_back(*std::max_element(row.begin() + static_cast<std::ptrdiff_t>(i),
                                       row.begin() + static_cast<std::ptrdiff_t>(std::min(i + 64, row.size()))));
  }
  Scratch scratch(5000, 100);
  LogProbabilities with;
  LogProbabilities without;
  log_probabilities(Row{row, maxima}, 77, 20, scratch, with);
  log_probabilities(Row{row}, 77, 20, scratch, without);
  EXPECT_EQ(with.drawn, without.drawn);
  EXPECT_EQ(with.top, without.top);
  // Sampling with everything on in between leaves the row, and so the numbers, alone.
  SamplerParameters p;
  p.logit_bias = {{77, 5.0f}};
  p.repetition_penalty = 2.0f;
  p.temperature = 0.3f;
  p.top_p = 0.5f;
  const std::vector<std::int32_t> history{77, 78};
  ASSERT_TRUE(Sampler::create(p, 5000)->sample(Row{row, maxima}, history, 2, scratch));
  log_probabilities(Row{row, maxima}, 77, 20, scratch, with);
  EXPECT_EQ(with.drawn, without.drawn);
  EXPECT_EQ(with.top, without.top);
}

TEST(LogProbabilities, FarBelowTheBestTheyStayNumbers) {
  std::vector<float> row(64, -1e4f);
  row[3] = 1e4f;
  Scratch scratch(64, 1);
  LogProbabilities got;
  log_probabilities(Row{row}, 9, 2, scratch, got);
  EXPECT_EQ(got.top[0], (TokenLogProbability{3, 0.0f}));
  EXPECT_EQ(got.drawn, (TokenLogProbability{9, -2e4f}));
}

TEST(LogProbabilities, NoMoreThanTheLimit) {
  EXPECT_TRUE(check_top_log_probabilities(0));
  EXPECT_TRUE(check_top_log_probabilities(limits::kMaxTopLogprobs));
  for (const int top : {-1, limits::kMaxTopLogprobs + 1}) {
    const Status status = check_top_log_probabilities(top);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace adze::sample
