#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/ref/ref.hpp"
#include "support/owned_weight.hpp"

namespace adze::ops::ref {
namespace {

using test::OwnedWeight;

float silu(double x) { return static_cast<float>(x / (1.0 + std::exp(-x))); }

TEST(RefDeltaHeads, WhichKeyHeadAValueHeadReads) {
  const DeltaHeads grouped{.key_heads = 2, .value_heads = 6};
  DeltaHeads tiled = grouped;
  tiled.tiled = true;
  std::vector<int> by_group, in_turn;
  for (int j = 0; j < 6; ++j) {
    by_group.push_back(grouped.key_head(j));
    in_turn.push_back(tiled.key_head(j));
  }
  EXPECT_EQ(by_group, (std::vector<int>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(in_turn, (std::vector<int>{0, 1, 0, 1, 0, 1}));
}

// One key head of two values, one value head of one: u has 5 channels, a row is [q q k k v | z | b | a].
struct Prep : testing::Test {
  StateLayer layer{.channels = 5, .kernel = 3, .value_heads = 1, .key_size = 2, .value_size = 1};
  DeltaState state{layer};
  // Channel c weighs the row two before with 100, the row before with 10 and its own with 1; v only its own.
  OwnedWeight convolution{5, 3, {100, 10, 1, 100, 10, 1, 100, 10, 1, 100, 10, 1, 0, 0, 1}};
  OwnedWeight rate{std::vector<float>{-2.0f}}, dt_bias{std::vector<float>{0.5f}};
  DeltaPrep step{.heads = {.key_heads = 1, .value_heads = 1, .key_size = 2, .value_size = 1},
                 .convolution = convolution.ref(),
                 .rate = rate.ref(),
                 .dt_bias = dt_bias.ref(),
                 .query_scale = 0.5f,
                 .l2_epsilon = 0.0f};
  Rows in{3, 8, {3, 4, 0, 2, 0.5f,  9, 0.0f,  -0.5f,  //
                 0, 0, 1, 0, -1.0f, 9, 1.0f,  0.0f,   //
                 1, 1, 1, 1, 2.0f,  9, -1.0f, 40.0f}};
};

TEST_F(Prep, ConvolvesOverTimeNormalisesAndMakesTheGates) {
  const Rows out = delta_prep(step, in, state);
  ASSERT_EQ(out.width, 7);
  const auto expect_pair = [&](int row, std::size_t at, double first, double second, double length) {
    const double x = silu(first), y = silu(second), norm = std::sqrt(x * x + y * y) / length;
    EXPECT_NEAR(out[row][at], x / norm, 1e-6);
    EXPECT_NEAR(out[row][at + 1], y / norm, 1e-6);
  };
  expect_pair(0, 0, 3, 4, 0.5);
  expect_pair(0, 2, 0, 2, 1);
  expect_pair(1, 0, 30, 40, 0.5);
  expect_pair(1, 2, 1, 20, 1);
  expect_pair(2, 0, 301, 401, 0.5);
  expect_pair(2, 2, 11, 201, 1);
  EXPECT_FLOAT_EQ(out[0][4], silu(0.5));
  EXPECT_FLOAT_EQ(out[1][4], silu(-1.0));
  EXPECT_FLOAT_EQ(out[2][4], silu(2.0));
  // decay = exp(-2 softplus(a + 0.5)): softplus(0) = ln 2, softplus(40.5) = 40.5 as good as
  EXPECT_FLOAT_EQ(out[0][5], 0.25f);
  EXPECT_FLOAT_EQ(out[1][5], static_cast<float>(std::exp(-2 * std::log(1 + std::exp(0.5)))));
  EXPECT_FLOAT_EQ(out[2][5], static_cast<float>(std::exp(-81.0)));
  EXPECT_FLOAT_EQ(out[0][6], 0.5f);
  EXPECT_FLOAT_EQ(out[1][6], 0.73105858f);
  EXPECT_FLOAT_EQ(out[2][6], 0.26894142f);
  // The last two inputs stay, raw.
  EXPECT_EQ(state.inputs.values, (std::vector<float>{0, 0, 1, 0, -1, 1, 1, 1, 1, 2}));
}

TEST_F(Prep, RowsMayComeOneByOne) {
  const Rows whole = delta_prep(step, in, state);
  DeltaState other(layer);
  for (int row = 0; row < in.count; ++row) {
    const Rows one = delta_prep(step, Rows(1, in.width, {in[row].begin(), in[row].end()}), other);
    EXPECT_EQ(one.values, std::vector<float>(whole[row].begin(), whole[row].end())) << row;
  }
  EXPECT_EQ(other.inputs.values, state.inputs.values);
}

TEST(RefDeltaPrep, TheEpsilonIsAddedToTheSum) {
  DeltaState state({.channels = 3, .kernel = 1, .value_heads = 1, .key_size = 1, .value_size = 1});
  const OwnedWeight convolution(3, 1, {1, 1, 1}), zero(std::vector<float>{0.0f});
  const DeltaPrep step{.heads = {.key_heads = 1, .value_heads = 1, .key_size = 1, .value_size = 1},
                       .convolution = convolution.ref(),
                       .rate = zero.ref(),
                       .dt_bias = zero.ref(),
                       .l2_epsilon = 3.0f};
  const Rows out = delta_prep(step, Rows(1, 6, {0, 2, 0, 0, 0, 0}), state);
  const double k = silu(2.0);
  EXPECT_FLOAT_EQ(out[0][1], static_cast<float>(k / std::sqrt(k * k + 3.0)));
  EXPECT_EQ(out[0][3], 1.0f);  // exp(0)
}

TEST(RefDeltaPrep, GatesMayComeByKeyHead) {
  // Two key heads, four value heads, all of size 1: u has 8 channels, z 4; then b and a.
  const StateLayer layer{.channels = 8, .kernel = 1, .value_heads = 4, .key_size = 1, .value_size = 1};
  const OwnedWeight convolution(8, 1, std::vector<float>(8, 1.0f));
  const OwnedWeight rate(std::vector<float>(4, -1.0f)), dt_bias(std::vector<float>(4, 0.0f));
  DeltaPrep step{.heads = {.key_heads = 2, .value_heads = 4, .key_size = 1, .value_size = 1},
                 .convolution = convolution.ref(),
                 .rate = rate.ref(),
                 .dt_bias = dt_bias.ref()};
  const auto gates = [&](std::vector<float> values) {
    Rows in(1, 20);
    std::ranges::copy(values, in[0].begin() + 12);
    DeltaState state(layer);
    const Rows out = delta_prep(step, in, state);
    return std::vector<float>(out[0].begin() + 8, out[0].end());
  };
  const std::vector<float> plain = gates({1, 2, 3, 4, 5, 6, 7, 8});
  step.heads.gates_by_key_head = true;
  EXPECT_EQ(gates({1, 2, 5, 6, 3, 4, 7, 8}), plain);
}

// S starts as [[1, 2], [3, 4]] (two keys, two values).
struct Scan : testing::Test {
  DeltaState state{{.channels = 6, .kernel = 1, .value_heads = 1, .key_size = 2, .value_size = 2}};
  DeltaScan step{.heads = {.key_heads = 1, .value_heads = 1, .key_size = 2, .value_size = 2}};
  Scan() { state.memory = {1, 2, 3, 4}; }
};

TEST_F(Scan, DecaysCorrectsAndReads) {
  // [q q k k v v decay beta]
  const Rows out = delta_scan(step, Rows(1, 8, {1, 10, 1, 0, 5, 7, 0.5f, 0.25f}), state);
  // S/2 = [[0.5, 1], [1.5, 2]]; S^T k = (0.5, 1); d = (4.5, 6) / 4 = (1.125, 1.5)
  EXPECT_EQ(state.memory, (std::vector<float>{1.625f, 2.5f, 1.5f, 2.0f}));
  EXPECT_EQ(out.values, (std::vector<float>{16.625f, 22.5f}));
}

TEST_F(Scan, WithoutBetaOnlyForgets) {
  const Rows out = delta_scan(step, Rows(1, 8, {1, 0, 1, 1, 5, 7, 0.5f, 0.0f}), state);
  EXPECT_EQ(state.memory, (std::vector<float>{0.5f, 1.0f, 1.5f, 2.0f}));
  EXPECT_EQ(out.values, (std::vector<float>{0.5f, 1.0f}));
}

TEST_F(Scan, AFullStepStoresTheValueUnderItsKey) {
  const Rows out = delta_scan(step,
                              Rows(2, 8,
                                   {1, 0, 1, 0, 5, 7, 1.0f, 1.0f,  //
                                    0, 1, 0, 1, 8, 9, 1.0f, 1.0f}),
                              state);
  EXPECT_EQ(state.memory, (std::vector<float>{5, 7, 8, 9}));
  EXPECT_EQ(out.values, (std::vector<float>{5, 7, 8, 9}));
}

TEST(RefDeltaScan, ValueHeadsReadTheirKeyHead) {
  DeltaScan step{.heads = {.key_heads = 2, .value_heads = 4, .key_size = 1, .value_size = 1}};
  const StateLayer layer{.channels = 8, .kernel = 1, .value_heads = 4, .key_size = 1, .value_size = 1};
  const Rows in(1, 16, {10, 100, 1, 1, 1, 2, 3, 4, 1, 1, 1, 1, 1, 1, 1, 1});  // q (10, 100), k 1, v 1 to 4
  DeltaState grouped(layer), tiled(layer);
  EXPECT_EQ(delta_scan(step, in, grouped).values, (std::vector<float>{10, 20, 300, 400}));
  step.heads.tiled = true;
  EXPECT_EQ(delta_scan(step, in, tiled).values, (std::vector<float>{10, 200, 30, 400}));
}

TEST(RefDeltaOut, NormalisesEachHeadAndThenGates) {
  const OwnedWeight weight(std::vector<float>{1.0f, 2.0f});
  const DeltaOut step{.heads = {.key_heads = 1, .value_heads = 2, .key_size = 1, .value_size = 2},
                      .norm = {.weight = weight.ref(), .epsilon = 0.0f}};
  Rows gate(1, step.heads.projected());
  std::ranges::copy(std::vector<float>{0, 1, -1, 2}, gate[0].begin() + 6);
  const Rows out = delta_out(step, Rows(1, 4, {3, 3, -5, 5}), gate);
  EXPECT_EQ(out[0][0], 0.0f);
  EXPECT_FLOAT_EQ(out[0][1], 2 * silu(1));
  EXPECT_FLOAT_EQ(out[0][2], -silu(-1));
  EXPECT_FLOAT_EQ(out[0][3], 2 * silu(2));
}

}  // namespace
}  // namespace adze::ops::ref
