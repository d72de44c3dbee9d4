#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/ref/ref.hpp"
#include "support/owned_weight.hpp"

namespace adze::ops::ref {
namespace {

using test::OwnedWeight;

std::vector<float> normalised(const NormSpec& spec, const std::vector<float>& in) {
  std::vector<float> out(in.size());
  normalise(spec, in, out);
  return out;
}

TEST(RefNorm, RmsDividesByTheRootOfTheMeanSquare) {
  // mean of squares (9 + 16) / 2 = 12.5; 1 / sqrt(12.5 + 0.5) = 0.27735
  const std::vector<float> out = normalised({.epsilon = 0.5f}, {3.0f, 4.0f});
  EXPECT_FLOAT_EQ(out[0], 3.0f / std::sqrt(13.0f));
  EXPECT_FLOAT_EQ(out[1], 4.0f / std::sqrt(13.0f));
}

TEST(RefNorm, WeightAndOnePlusWeight) {
  const OwnedWeight weight(std::vector<float>{2.0f, -1.0f});
  NormSpec spec{.weight = weight.ref(), .epsilon = 0.0f};
  const float unit = 1.0f / std::sqrt(12.5f);
  EXPECT_FLOAT_EQ(normalised(spec, {3.0f, 4.0f})[0], 6.0f * unit);
  EXPECT_FLOAT_EQ(normalised(spec, {3.0f, 4.0f})[1], -4.0f * unit);
  spec.one_plus = true;
  EXPECT_FLOAT_EQ(normalised(spec, {3.0f, 4.0f})[0], 9.0f * unit);
  EXPECT_FLOAT_EQ(normalised(spec, {3.0f, 4.0f})[1], 0.0f);
}

TEST(RefNorm, LayerNormTakesTheMeanOff) {
  // mean 3, variance ((-2)^2 + 0 + 2^2) / 3 = 8/3
  const std::vector<float> out = normalised({.kind = NormSpec::Kind::layer, .epsilon = 0.0f}, {1.0f, 3.0f, 5.0f});
  EXPECT_FLOAT_EQ(out[0], -2.0f / std::sqrt(8.0f / 3.0f));
  EXPECT_FLOAT_EQ(out[1], 0.0f);
  EXPECT_FLOAT_EQ(out[2], 2.0f / std::sqrt(8.0f / 3.0f));
}

TEST(RefNorm, AShortWeightNormalisesEachHead) {
  const OwnedWeight weight(std::vector<float>{1.0f, 1.0f});
  const std::vector<float> out = normalised({.weight = weight.ref(), .epsilon = 0.0f}, {3.0f, 3.0f, -5.0f, 5.0f});
  EXPECT_FLOAT_EQ(out[0], 1.0f);
  EXPECT_FLOAT_EQ(out[1], 1.0f);
  EXPECT_FLOAT_EQ(out[2], -1.0f);
  EXPECT_FLOAT_EQ(out[3], 1.0f);
}

TEST(RefNorm, AZeroRowStaysZero) {
  EXPECT_EQ(normalised({.epsilon = 1e-5f}, {0.0f, 0.0f}), (std::vector<float>{0.0f, 0.0f}));
}

TEST(RefNorm, ResidualNormAddsNormalisedAddendsThenScales) {
  // h = (1, 1) + rms(3, 4) + (1, -1) = (2 + 3u, 4u) with u = 1 / sqrt(12.5); times 2
  const ResidualNorm step{.residual = 0,
                          .addends = {{.in = 1, .has_norm = true, .norm = {.epsilon = 0.0f}}, {.in = 2, .norm = {}}},
                          .scale = 2.0f,
                          .norm = {.epsilon = 0.0f},
                          .out = 3};
  Rows residual(1, 2, {1.0f, 1.0f});
  const Rows first(1, 2, {3.0f, 4.0f});
  const Rows second(1, 2, {1.0f, -1.0f});
  const Rows* addends[] = {&first, &second};
  const Rows out = residual_norm(step, residual, addends);
  const double u = 1.0 / std::sqrt(12.5);
  const double h0 = 2.0 * (2.0 + 3.0 * u);
  const double h1 = 2.0 * (4.0 * u);
  EXPECT_NEAR(residual[0][0], h0, 1e-6);
  EXPECT_NEAR(residual[0][1], h1, 1e-6);
  EXPECT_NEAR(out[0][0], h0 / std::sqrt((h0 * h0 + h1 * h1) / 2), 1e-6);
  EXPECT_NEAR(out[0][1], h1 / std::sqrt((h0 * h0 + h1 * h1) / 2), 1e-6);
}

}  // namespace
}  // namespace adze::ops::ref
