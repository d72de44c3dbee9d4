#include "ops/ref/interpreter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/owned_weight.hpp"

namespace adze::ops::ref {
namespace {

using test::OwnedWeight;

// One layer of width 4 with weights that differ in every place: embed, norm, project, prep, attend, project_add,
// residual norm, gated pair, project_add, head.
struct TinyModel {
  static constexpr int kVocabulary = 5;
  static std::vector<float> wave(int count, float phase) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase + 1.7f * static_cast<float>(i));
    return values;
  }
  OwnedWeight table{kVocabulary, 4, wave(20, 0.1f)};
  OwnedWeight norm{std::vector<float>{1.0f, 0.5f, 1.5f, 2.0f}};
  OwnedWeight q{4, 4, wave(16, 0.2f)}, k{2, 4, wave(8, 0.3f)}, v{2, 4, wave(8, 0.4f)}, o{4, 4, wave(16, 0.5f)};
  OwnedWeight gate{6, 4, wave(24, 0.6f)}, up{6, 4, wave(24, 0.7f)}, down{4, 6, wave(24, 0.8f)};
  Plan plan;

  TinyModel() {
    const NormSpec weighted{.weight = norm.ref()};
    plan.buffers = {{"h", 4}, {"x", 4}, {"qkv", 8}, {"q", 4}, {"attention", 4}, {"gated", 6}};
    plan.ropes = {{.inverse_frequency = {1.0f}}};
    plan.kv_layers = {{.kv_heads = 1, .head_size = 2}};
    plan.steps = {
        Embed{.table = table.ref(), .out = 0},
        Norm{.norm = weighted, .in = 0, .out = 1},
        Project{.parts = {{.weight = q.ref()}, {.weight = k.ref()}, {.weight = v.ref()}}, .in = 1, .out = 2},
        AttentionPrep{.heads = 2, .kv_heads = 1, .head_size = 2, .rope = 0, .in = 2, .out = 3},
        Attend{.heads = 2, .kv_heads = 1, .head_size = 2, .scale = 0.7f, .in = 3, .out = 4},
        ProjectAdd{.weight = o.ref(), .in = 4, .out = 0},
        ResidualNorm{.residual = 0, .addends = {}, .norm = weighted, .out = 1},
        GatedPair{.gate = gate.ref(), .up = up.ref(), .in = 1, .out = 5},
        ProjectAdd{.weight = down.ref(), .in = 5, .out = 0},
        Head{.norm = weighted, .weight = table.ref(), .in = 0},
    };
  }
};

TEST(Interpreter, AnyChunkingOfAPromptGivesTheSameLogits) {
  const TinyModel model;
  const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 0, 2};
  const Rows whole = Interpreter(model.plan).run(tokens, 6);
  ASSERT_EQ(whole.count, 6);
  ASSERT_EQ(whole.width, TinyModel::kVocabulary);
  Interpreter one_by_one(model.plan);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Rows row = one_by_one.run(std::span(tokens).subspan(i, 1), 1);
    for (std::size_t j = 0; j < row.values.size(); ++j) EXPECT_EQ(row[0][j], whole[static_cast<int>(i)][j]);
  }
  EXPECT_EQ(one_by_one.position(), 6);
}

TEST(Interpreter, StepsRunInOrderAndTheObserverSeesWhatTheyWrote) {
  const TinyModel model;
  std::vector<std::pair<int, BufferId>> seen;
  Rows embedded;
  const std::int32_t tokens[] = {2};
  const Rows logits = Interpreter(model.plan).run(tokens, 0, [&](int step, BufferId buffer, const Rows& values) {
    seen.emplace_back(step, buffer);
    if (step == 0) embedded = values;
  });
  EXPECT_EQ(logits.count, 0);
  EXPECT_EQ(seen, (std::vector<std::pair<int, BufferId>>{
                      {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 0}, {6, 0}, {6, 1}, {7, 5}, {8, 0}}));
  const std::int32_t token[] = {2};
  EXPECT_EQ(embedded.values, embed({.table = model.table.ref()}, token).values);
}

// The same layer written out with the step functions, for two tokens at once.
TEST(Interpreter, EqualsTheStepsCalledByHand) {
  const TinyModel model;
  const std::vector<std::int32_t> tokens = {4, 2};
  const std::vector<std::int32_t> positions = {0, 1};
  const auto step = [&]<class S>(const S&, std::size_t i) { return std::get<S>(model.plan.steps[i]); };
  Rows h = embed(step(Embed{}, 0), tokens);
  const Rows qkv = project(step(Project{}, 2), norm(step(Norm{}, 1), h));
  const QueryKeyValue prepared = attention_prep(step(AttentionPrep{}, 3), model.plan.ropes.data(), qkv, positions);
  const Rows attention = attend(step(Attend{}, 4), prepared.q, positions, prepared.k, prepared.v);
  project_add(step(ProjectAdd{}, 5), attention, h);
  const Rows x = residual_norm(step(ResidualNorm{}, 6), h, {});
  project_add(step(ProjectAdd{}, 8), gated_pair(step(GatedPair{}, 7), x), h);
  EXPECT_EQ(Interpreter(model.plan).run(tokens, 2).values, head(step(Head{}, 9), h).values);
}

TEST(Interpreter, KvMayBeStoredAsHalfFloats) {
  const TinyModel model;
  const std::int32_t tokens[] = {3, 1, 4};
  const Rows exact = Interpreter(model.plan).run(tokens, 1);
  const Rows rounded = Interpreter(model.plan, KvRounding::f16).run(tokens, 1);
  EXPECT_NE(exact.values, rounded.values);
  for (std::size_t i = 0; i < exact.values.size(); ++i) EXPECT_NEAR(exact[0][i], rounded[0][i], 1e-2);
}

}  // namespace
}  // namespace adze::ops::ref
