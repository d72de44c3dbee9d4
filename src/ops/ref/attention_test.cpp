#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/ref/ref.hpp"
#include "support/owned_weight.hpp"

namespace adze::ops::ref {
namespace {

using test::OwnedWeight;

std::vector<float> rotated(const RopeSpec& rope, std::int32_t position, std::vector<float> head) {
  rotate(rope, position, head);
  return head;
}

TEST(RefRope, HalfSplitAndInterleavedPairsAndTheRestPassesThrough) {
  RopeSpec rope{.inverse_frequency = {1.0f, 0.1f}};
  const std::vector<float> head = {1, 2, 3, 4, 5, 6};
  const float c0 = std::cos(2.0f), s0 = std::sin(2.0f), c1 = std::cos(0.2f), s1 = std::sin(0.2f);
  const std::vector<float> half = rotated(rope, 2, head);  // pairs (0, 2) and (1, 3)
  EXPECT_NEAR(half[0], 1 * c0 - 3 * s0, 1e-6);
  EXPECT_NEAR(half[2], 1 * s0 + 3 * c0, 1e-6);
  EXPECT_NEAR(half[1], 2 * c1 - 4 * s1, 1e-6);
  EXPECT_NEAR(half[3], 2 * s1 + 4 * c1, 1e-6);
  rope.interleaved = true;
  const std::vector<float> pairs = rotated(rope, 2, head);  // pairs (0, 1) and (2, 3)
  EXPECT_NEAR(pairs[0], 1 * c0 - 2 * s0, 1e-6);
  EXPECT_NEAR(pairs[1], 1 * s0 + 2 * c0, 1e-6);
  EXPECT_NEAR(pairs[2], 3 * c1 - 4 * s1, 1e-6);
  EXPECT_NEAR(pairs[3], 3 * s1 + 4 * c1, 1e-6);
  for (const auto& out : {half, pairs}) {
    EXPECT_EQ(out[4], 5.0f);
    EXPECT_EQ(out[5], 6.0f);
  }
}

TEST(RefRope, PositionZeroOnlyAppliesTheMagnitude) {
  const RopeSpec rope{.inverse_frequency = {1.0f}, .magnitude = 1.5f};
  EXPECT_EQ(rotated(rope, 0, {2, 4}), (std::vector<float>{3, 6}));
}

TEST(RefAttentionPrep, SplitsNormalisesRotatesQAndKAndLeavesV) {
  const OwnedWeight q_weight(std::vector<float>{1.0f, 2.0f});
  const OwnedWeight k_weight(std::vector<float>{3.0f, 1.0f});
  const AttentionPrep step{.heads = 2,
                           .kv_heads = 1,
                           .head_size = 2,
                           .has_q_norm = true,
                           .has_k_norm = true,
                           .q_norm = {.weight = q_weight.ref(), .epsilon = 0.0f},
                           .k_norm = {.weight = k_weight.ref(), .epsilon = 0.0f}};
  const RopeSpec rope{.inverse_frequency = {0.5f}};
  const Rows in(1, 8, {5, 5, -7, 7, 2, 2, 8, 9});  // q heads (5, 5), (-7, 7); k (2, 2); v (8, 9)
  const std::int32_t positions[] = {3};
  const QueryKeyValue out = attention_prep(step, &rope, in, positions);
  const float c = std::cos(1.5f), s = std::sin(1.5f);
  // normalised: q (1, 2), (-1, 2); k (3, 1)
  EXPECT_NEAR(out.q[0][0], c - 2 * s, 1e-6);
  EXPECT_NEAR(out.q[0][1], s + 2 * c, 1e-6);
  EXPECT_NEAR(out.q[0][2], -c - 2 * s, 1e-6);
  EXPECT_NEAR(out.q[0][3], -s + 2 * c, 1e-6);
  EXPECT_NEAR(out.k[0][0], 3 * c - s, 1e-6);
  EXPECT_NEAR(out.k[0][1], 3 * s + c, 1e-6);
  EXPECT_EQ(out.v.values, (std::vector<float>{8, 9}));
}

TEST(RefAttentionPrep, NormOfAHeadWithoutAWeightCoversTheHeadNotTheRow) {
  const AttentionPrep step{.heads = 2, .kv_heads = 1, .head_size = 1, .has_q_norm = true, .q_norm = {.epsilon = 0.0f}};
  const std::int32_t positions[] = {0};
  const QueryKeyValue out = attention_prep(step, nullptr, Rows(1, 4, {5, -7, 2, 3}), positions);
  EXPECT_EQ(out.q.values, (std::vector<float>{1, -1}));
  EXPECT_EQ(out.k.values, (std::vector<float>{2}));
}

TEST(RefAttentionPrep, GatesStandBehindEachHeadOfQ) {
  const AttentionPrep step{.heads = 2, .kv_heads = 1, .head_size = 2, .gate = 0};
  const std::int32_t positions[] = {0};
  const QueryKeyValue out =
      attention_prep(step, nullptr, Rows(1, 12, {1, 2, -1, -2, 3, 4, -3, -4, 5, 6, 7, 8}), positions);
  EXPECT_EQ(out.q.values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(out.gate.values, (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(out.k.values, (std::vector<float>{5, 6}));
  EXPECT_EQ(out.v.values, (std::vector<float>{7, 8}));
}

// Keys are chosen so that exp(score) is 1, 2 and 4: weights are those over their sum.
struct Attention : testing::Test {
  const float log2 = std::log(2.0f);
  Rows keys{3, 1, {0.0f, log2, 2 * log2}};
  Rows values{3, 1, {1.0f, 10.0f, 100.0f}};
  Attend step{.heads = 1, .kv_heads = 1, .head_size = 1};
  Rows q{3, 1, {1.0f, 1.0f, 1.0f}};
  std::vector<std::int32_t> positions{0, 1, 2};
};

TEST_F(Attention, EachRowSeesItselfAndWhatCameBefore) {
  const Rows out = attend(step, q, positions, keys, values);
  EXPECT_FLOAT_EQ(out[0][0], 1.0f);
  EXPECT_FLOAT_EQ(out[1][0], (1 + 2 * 10) / 3.0f);
  EXPECT_FLOAT_EQ(out[2][0], (1 + 2 * 10 + 4 * 100) / 7.0f);
}

TEST_F(Attention, RowsMayStartAnywhere) {
  const Rows out = attend(step, Rows(1, 1, {1.0f}), std::vector<std::int32_t>{2}, keys, values);
  EXPECT_FLOAT_EQ(out[0][0], 421 / 7.0f);
}

TEST_F(Attention, TheWindowCountsTheRowItself) {
  step.window = 2;
  const Rows out = attend(step, q, positions, keys, values);
  EXPECT_FLOAT_EQ(out[1][0], 21 / 3.0f);
  EXPECT_FLOAT_EQ(out[2][0], (2 * 10 + 4 * 100) / 6.0f);
  step.window = 1;
  EXPECT_FLOAT_EQ(attend(step, q, positions, keys, values)[2][0], 100.0f);
}

TEST_F(Attention, ScaleMultipliesTheScore) {
  step.scale = 2.0f;
  EXPECT_FLOAT_EQ(attend(step, q, positions, keys, values)[1][0], (1 + 4 * 10) / 5.0f);
}

TEST_F(Attention, SoftcapBoundsTheScaledScore) {
  step.softcap = 0.5f;
  const float weight = std::exp(0.5f * std::tanh(log2 / 0.5f));
  EXPECT_FLOAT_EQ(attend(step, q, positions, keys, values)[1][0], (1 + weight * 10) / (1 + weight));
}

TEST_F(Attention, ASinkTakesItsShareAndGivesNothing) {
  const OwnedWeight sinks(std::vector<float>{3 * log2});
  step.sinks = sinks.ref();
  const Rows out = attend(step, q, positions, keys, values);
  EXPECT_FLOAT_EQ(out[0][0], 1.0f / 9.0f);
  EXPECT_FLOAT_EQ(out[2][0], 421 / 15.0f);
}

TEST_F(Attention, AGateScalesTheResultByItsSigmoid) {
  step.gate = 0;
  const Rows gate(3, 1, {0.0f, 100.0f, -2.0f});
  const Rows out = attend(step, q, positions, keys, values, &gate);
  EXPECT_FLOAT_EQ(out[0][0], 0.5f);
  EXPECT_FLOAT_EQ(out[1][0], 21 / 3.0f);
  EXPECT_FLOAT_EQ(out[2][0], 421 / 7.0f * 0.11920292f);
}

TEST_F(Attention, LargeScoresDoNotOverflow) {
  step.scale = 1e6f;
  EXPECT_FLOAT_EQ(attend(step, q, positions, keys, values)[2][0], 100.0f);
}

TEST(RefAttend, QueryHeadsShareKvHeadsInGroups) {
  const Attend step{.heads = 4, .kv_heads = 2, .head_size = 1};
  const std::int32_t positions[] = {0};
  const Rows out = attend(step, Rows(1, 4, {1, 2, 3, 4}), positions, Rows(1, 2, {1, 1}), Rows(1, 2, {5, 6}));
  EXPECT_EQ(out.values, (std::vector<float>{5, 5, 6, 6}));
}

TEST(RefAttend, AKeyThatWasNeverStoredIsOurBug) {
  const Attend step{.heads = 1, .kv_heads = 1, .head_size = 1};
  const std::int32_t positions[] = {1};
  EXPECT_DEATH(attend(step, Rows(1, 1), positions, Rows(1, 1), Rows(1, 1)), "position 1");
}

}  // namespace
}  // namespace adze::ops::ref
