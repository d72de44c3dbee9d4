#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/ref/ref.hpp"
#include "support/owned_weight.hpp"

namespace adze::ops::ref {
namespace {

using test::OwnedWeight;

TEST(RefProject, EmbedTakesTheRowOfTheTokenTimesTheScale) {
  const OwnedWeight table(3, 2, {1, 2, 3, 4, 5, 6});
  const std::int32_t tokens[] = {2, 0};
  const Rows out = embed({.table = table.ref(), .scale = 2.0f}, tokens);
  EXPECT_EQ(out.values, (std::vector<float>{10, 12, 2, 4}));
}

TEST(RefProject, PartsAreStackedInTheirOrder) {
  const OwnedWeight q(2, 2, {1, 0, 0, 1});
  const OwnedWeight k(1, 2, {1, 1});
  const OwnedWeight k_bias(std::vector<float>{0.5f});
  const Project step{.parts = {{.weight = q.ref()}, {.weight = k.ref(), .bias = k_bias.ref()}}};
  const Rows out = project(step, Rows(2, 2, {3, 4, -1, 2}));
  EXPECT_EQ(out.values, (std::vector<float>{3, 4, 7.5f, -1, 2, 1.5f}));
}

TEST(RefProject, QuantisedWeightsMeanTheirDequantisedValues) {
  std::vector<float> values(2 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const OwnedWeight quantised(tensor::DType::q4_1, 2, 64, values);
  std::vector<float> stored(values.size());
  tensor::dequantise_row(tensor::DType::q4_1, quantised.ref()->bytes.data(), stored.data(), 128);
  const OwnedWeight plain(2, 64, stored);
  const Rows in(1, 64, std::vector<float>(values.begin(), values.begin() + 64));
  EXPECT_EQ(multiply(quantised.ref(), nullptr, in).values, multiply(plain.ref(), nullptr, in).values);
}

TEST(RefProject, ProjectAddAddsOrReplaces) {
  const OwnedWeight weight(1, 2, {2, 3});
  const OwnedWeight bias(std::vector<float>{0.25f});
  Rows out(1, 1, {10});
  project_add({.weight = weight.ref(), .bias = bias.ref(), .add = true}, Rows(1, 2, {1, 1}), out);
  EXPECT_FLOAT_EQ(out[0][0], 15.25f);
  project_add({.weight = weight.ref(), .bias = bias.ref(), .add = false}, Rows(1, 2, {1, 1}), out);
  EXPECT_FLOAT_EQ(out[0][0], 5.25f);
}

TEST(RefProject, Activations) {
  EXPECT_NEAR(activate(Activation::silu, 1.0), 0.7310585786300049, 1e-12);
  EXPECT_NEAR(activate(Activation::silu, -800.0), 0.0, 1e-12);
  EXPECT_NEAR(activate(Activation::gelu_tanh, 1.0), 0.8411919906082768, 1e-9);
  EXPECT_NEAR(activate(Activation::gelu_erf, 1.0), 0.8413447460685429, 1e-12);
  EXPECT_EQ(activate(Activation::relu_squared, 3.0), 9.0);
  EXPECT_EQ(activate(Activation::relu_squared, -3.0), 0.0);
}

TEST(RefProject, GatedPairMultipliesTheActivatedGateWithUp) {
  const OwnedWeight gate(1, 1, {2});
  const OwnedWeight up(1, 1, {3});
  const OwnedWeight gate_bias(std::vector<float>{-1});
  const OwnedWeight up_bias(std::vector<float>{1});
  const GatedPair step{.gate = gate.ref(), .up = up.ref(), .gate_bias = gate_bias.ref(), .up_bias = up_bias.ref()};
  // gate 2 * 1 - 1 = 1, up 3 * 1 + 1 = 4
  EXPECT_FLOAT_EQ(gated_pair(step, Rows(1, 1, {1}))[0][0], 4.0f * 0.7310586f);
}

TEST(RefProject, HeadNormalisesMultipliesAndCaps) {
  const OwnedWeight weight(2, 2, {10, 0, 0, 1});
  Head step{.norm = {.epsilon = 0.0f}, .weight = weight.ref()};
  const Rows in(1, 2, {3, 3});  // normalised: (1, 1)
  EXPECT_EQ(head(step, in).values, (std::vector<float>{10, 1}));
  step.softcap = 5.0f;
  EXPECT_FLOAT_EQ(head(step, in)[0][0], 5.0f * std::tanh(2.0f));
  EXPECT_FLOAT_EQ(head(step, in)[0][1], 5.0f * std::tanh(0.2f));
}

TEST(RefProject, WidthsThatDoNotFitAreOurBug) {
  const OwnedWeight weight(1, 2, {2, 3});
  EXPECT_DEATH(multiply(weight.ref(), nullptr, Rows(1, 3)), "a weight for rows of 3");
  const std::int32_t tokens[] = {1};
  EXPECT_DEATH(embed({.table = weight.ref()}, tokens), "token 1 of 1");
}

}  // namespace
}  // namespace adze::ops::ref
