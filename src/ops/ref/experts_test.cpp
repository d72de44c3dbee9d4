#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/ref/ref.hpp"
#include "support/owned_weight.hpp"

namespace adze::ops::ref {
namespace {

using test::OwnedWeight;
using test::SlicedWeight;

// Logits ln 1, ln 2, ln 4, ln 1 for x = 1: probabilities 1/8, 1/4, 1/2, 1/8.
const std::vector<float> kLogits{0.0f, std::log(2.0f), std::log(4.0f), 0.0f};

void expect_row(const Rows& rows, int row, const std::vector<float>& expected) {
  ASSERT_EQ(rows.width, static_cast<int>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(rows[row][i], expected[i], 1e-6f) << "value " << i;
}

TEST(RefRoute, SoftmaxWeighsTheLargestAndListsThemById) {
  const OwnedWeight weight(4, 1, kLogits);
  Route step{.weight = weight.ref(), .used = 2};
  const Rows x(2, 1, {1, -1});
  expect_row(route(step, x), 0, {1, 2, 0.25f, 0.5f});
  // Negated: p = 4/11, 2/11, 1/11, 4/11.
  expect_row(route(step, x), 1, {0, 3, 4.0f / 11, 4.0f / 11});
  // Renormalised it is the softmax over the chosen.
  step.renormalise = true;
  expect_row(route(step, x), 0, {1, 2, 1.0f / 3, 2.0f / 3});
}

TEST(RefRoute, TiesGoToTheLowerId) {
  const OwnedWeight weight(4, 1, {3, 5, 3, 3});
  expect_row(route({.weight = weight.ref(), .renormalise = true, .logit_scale = 0.0f, .used = 3}, Rows(1, 1, {1})), 0,
             {0, 1, 2, 1.0f / 3, 1.0f / 3, 1.0f / 3});
  expect_row(route({.weight = weight.ref(), .used = 2}, Rows(1, 1, {0})), 0, {0, 1, 0.25f, 0.25f});
}

TEST(RefRoute, BiasScalesAndTheScaleOfEachExpert) {
  const OwnedWeight weight(2, 1, {1, 3});
  const OwnedWeight bias(std::vector<float>{10, 0}), expert_scale(std::vector<float>{0.5f, 7});
  // s = 2 x w + b = 12, 6
  const Route step{.weight = weight.ref(),
                   .bias = bias.ref(),
                   .expert_scale = expert_scale.ref(),
                   .renormalise = true,
                   .logit_scale = 2.0f,
                   .scale = 3.0f,
                   .used = 1};
  expect_row(route(step, Rows(1, 1, {1})), 0, {0, 1.5f});
}

TEST(RefRoute, SigmoidWithABiasThatOnlyChooses) {
  const OwnedWeight weight(3, 1, {0, std::log(3.0f), std::log(4.0f)});  // p = 1/2, 3/4, 4/5
  const OwnedWeight choice(std::vector<float>{0.3f, 0.0f, -0.2f});      // ranks 0.8, 0.75, 0.6
  Route step{.weight = weight.ref(), .choice_bias = choice.ref(), .scoring = Route::Scoring::sigmoid, .used = 2};
  expect_row(route(step, Rows(1, 1, {1})), 0, {0, 1, 0.5f, 0.75f});
  step.renormalise = true;
  step.scale = 2.5f;
  expect_row(route(step, Rows(1, 1, {1})), 0, {0, 1, 1.0f, 1.5f});
}

TEST(RefRoute, TheSharedExpertIsTheLastSlot) {
  const OwnedWeight weight(4, 1, kLogits), gate(std::vector<float>{std::log(3.0f)});
  Route step{.weight = weight.ref(), .shared = true, .used = 1};
  expect_row(route(step, Rows(1, 1, {1})), 0, {2, 4, 0.5f, 1.0f});
  step.shared_gate = gate.ref();
  expect_row(route(step, Rows(1, 1, {1})), 0, {2, 4, 0.5f, 0.75f});
}

// Two experts of one value: relu(gate x)^2 * up x * down.
struct Two {
  OwnedWeight gate{2, 1, {1, 2}}, up{2, 1, {3, 5}}, down{2, 1, {10, 100}};
  OwnedWeight gate_up{4, 1, {1, 3, 2, 5}};
  OwnedWeight gate_bias{2, 1, {1, 0}}, up_bias{2, 1, {0, -1}}, down_bias{2, 1, {0.5f, 0}};
  Experts step{.routed = {.gate = gate.ref(), .up = up.ref(), .down = down.ref(), .count = 2, .width = 1},
               .activation = Activation::relu_squared,
               .slots = 2};
};

TEST(RefExperts, WeighTheirOutputsAndAddThem) {
  Two two;
  Rows out(1, 1, {1000});
  // f_0(2) = 4 * 6 * 10 = 240, f_1(2) = 16 * 10 * 100 = 16000
  experts(two.step, Rows(1, 1, {2}), Rows(1, 4, {0, 1, 0.5f, 0.25f}), out);
  EXPECT_FLOAT_EQ(out[0][0], 1000 + 120 + 4000);
  two.step.add = false;
  experts(two.step, Rows(1, 1, {2}), Rows(1, 4, {0, 1, 0.5f, 0.25f}), out);
  EXPECT_FLOAT_EQ(out[0][0], 120 + 4000);
}

TEST(RefExperts, BiasesAreWeighedWithTheRest) {
  Two two;
  two.step.routed.gate_bias = two.gate_bias.ref();
  two.step.routed.up_bias = two.up_bias.ref();
  two.step.routed.down_bias = two.down_bias.ref();
  two.step.slots = 1;
  Rows out(2, 1);
  // f_0(2) = 9 * 6 * 10 + 0.5, f_1(2) = 16 * 9 * 100
  experts(two.step, Rows(2, 1, {2, 2}), Rows(2, 2, {0, 2, 1, 0.5f}), out);
  EXPECT_FLOAT_EQ(out[0][0], 1081);
  EXPECT_FLOAT_EQ(out[1][0], 7200);
}

TEST(RefExperts, GateAndUpOfEachExpertMayLieInOneWeight) {
  Two two;
  const Rows in(1, 1, {2}), routes(1, 4, {0, 1, 0.5f, 0.25f});
  Rows apart(1, 1), together(1, 1);
  experts(two.step, in, routes, apart);
  const SlicedWeight gate(*two.gate_up.ref(), 2, 0, 1), up(*two.gate_up.ref(), 2, 1, 1);
  two.step.routed.gate = gate.ref();
  two.step.routed.up = up.ref();
  experts(two.step, in, routes, together);
  EXPECT_EQ(apart.values, together.values);
}

TEST(RefExperts, TheSharedExpertHasItsOwnWidth) {
  Two two;
  const OwnedWeight gate(2, 1, {1, 2}), up(2, 1, {1, 1}), down(1, 2, {1, 10});
  two.step.shared = {.gate = gate.ref(), .up = up.ref(), .down = down.ref(), .count = 1, .width = 2};
  Rows out(1, 1);
  // f_0(1) = 1 * 3 * 10 = 30; shared(1) = (1 * 1, 4 * 1) . (1, 10) = 41
  experts(two.step, Rows(1, 1, {1}), Rows(1, 4, {0, 2, 1, 2}), out);
  EXPECT_FLOAT_EQ(out[0][0], 30 + 82);
}

TEST(RefExperts, ClampedSwiGlu) {
  EXPECT_NEAR(gated(Activation::swiglu_oai, 1.0, 0.5), 1.0 / (1.0 + std::exp(-1.702)) * 1.5, 1e-7);
  EXPECT_NEAR(gated(Activation::swiglu_oai, 50.0, 50.0), 7.0 / (1.0 + std::exp(-1.702 * 7)) * 8.0, 1e-6);
  EXPECT_NEAR(gated(Activation::swiglu_oai, -50.0, -50.0), -50.0 / (1.0 + std::exp(1.702 * 50)) * -6.0, 1e-12);
  EXPECT_NEAR(gated(Activation::silu, 1.0, 2.0), 2.0 * activate(Activation::silu, 1.0), 1e-15);
}

}  // namespace
}  // namespace adze::ops::ref
