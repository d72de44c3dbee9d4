// Dispatches that cover several steps against every step by itself, bit for bit: head counts and widths that divide by
// nothing, blocks that lie across heads and across threads, more threads than heads, few rows and many. And against the
// definition of the steps. Under ThreadSanitizer this is the test of what threads complete together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_fusion.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/owned_weight.hpp"

namespace adze::cpu {
namespace {

using backend::Compute;
using tensor::DType;
using test::OwnedWeight;

constexpr int kVocabulary = 53, kPositions = 512;

struct Case {
  const char* name;
  DType type;  // of the large matrices
  int hidden, heads, kv_heads, head_size, feed_forward;
  bool gated = false;           // attention
  bool norm_all_heads = false;  // else over each head
  bool keys_as_values = false;
  bool sandwich = false;   // norms behind the projections too, and an input of its own for each layer
  DType up = DType::f32;   // of W_up, when it differs
  int experts = 0;         // in place of the feed-forward part
  bool recurrent = false;  // Gated DeltaNet in place of attention: heads are value heads, kv_heads key heads
  bool parallel = false;   // the feed-forward part reads what attention reads
  bool dense = false;      // a feed-forward part beside the experts
};

// Two layers of the kind that a case tells of.
class Model {
 public:
  explicit Model(const Case& c) : c_(c) {
    plan_.hidden_size = c.hidden;
    plan_.vocabulary_size = kVocabulary;
    plan_.context_length = kPositions;
    plan_.ropes.push_back({});
    for (int i = 0; i < c.head_size / 4; ++i)
      plan_.ropes[0].inverse_frequency.push_back(1.0f / static_cast<float>(1 + i));
    const ops::BufferId h = buffer(c.hidden), x = buffer(c.hidden);
    add(ops::Embed{.table = weight(DType::f32, kVocabulary, c.hidden), .out = h}, -1);
    const ops::BufferId inputs = c.sandwich ? buffer(2 * 32) : -1;
    if (c.sandwich) add(ops::Embed{.table = weight(DType::f32, kVocabulary, 2 * 32), .out = inputs}, -1);
    for (int layer = 0; layer < 2; ++layer) {
      add(ops::Norm{.norm = norm(c.hidden), .in = h, .out = x}, layer);
      const ops::BufferId mixed = c.recurrent ? delta_net(x, layer) : attention(x, layer);
      project_back(mixed, h, layer);
      if (c.parallel) {
        project_back(feed_forward(x, layer), h, layer);
        continue;
      }
      add(ops::Norm{.norm = norm(c.hidden), .in = h, .out = x}, layer);
      if (c.experts > 0) {
        if (c.dense) {
          const ops::BufferId into = buffer(c.hidden);
          add(ops::Norm{.norm = norm(c.hidden), .in = x, .out = into}, layer);
          project_back(feed_forward(x, layer), h, layer);
          const ops::BufferId routed = buffer(c.hidden);
          experts(into, routed, false, layer);
          add(ops::ResidualNorm{.residual = h, .addends = {{.in = routed, .norm = {}}}, .norm = {}}, layer);
          continue;
        }
        experts(x, h, true, layer);
        continue;
      }
      project_back(feed_forward(x, layer), h, layer);
      if (!c.sandwich) continue;
      add(ops::Norm{.norm = {.kind = ops::NormSpec::Kind::none}, .in = h, .out = x}, layer);
      const ops::BufferId gated = buffer(32);
      add(
          ops::GatedPair{
              .gate = weight(c.type, 32, c.hidden), .in = x, .out = gated, .side = inputs, .side_first = 32 * layer},
          layer);
      project_back(gated, h, layer, DType::q8_0);
    }
    add(ops::Head{.norm = norm(c.hidden), .weight = weight(c.type, kVocabulary, c.hidden), .in = h}, -1);
  }
  const ops::Plan& plan() const { return plan_; }

 private:
  ops::BufferId buffer(int width) {
    plan_.buffers.push_back({fmt::format("b{}", plan_.buffers.size()), width});
    return static_cast<ops::BufferId>(plan_.buffers.size() - 1);
  }
  ops::WeightRef weight(DType type, int rows, int columns, float deviation = 1.0f) {
    std::normal_distribution<float> normal(0.0f, deviation / std::sqrt(static_cast<float>(columns)));
    std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
    for (float& v : values) v = normal(random_);
    weights_.push_back(std::make_unique<OwnedWeight>(type, rows, columns, values));
    return weights_.back()->ref();
  }
  ops::WeightRef vector(int size, float mean) {
    std::normal_distribution<float> normal(mean, 0.2f);
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& v : values) v = normal(random_);
    weights_.push_back(std::make_unique<OwnedWeight>(values));
    return weights_.back()->ref();
  }
  ops::NormSpec norm(int size) { return {.weight = vector(size, 1.0f)}; }
  void add(ops::Step step, int layer) {
    plan_.steps.push_back(std::move(step));
    plan_.step_layers.push_back(layer);
  }

  ops::BufferId attention(ops::BufferId x, int layer) {
    const int query = c_.heads * c_.head_size, key = c_.kv_heads * c_.head_size, factor = c_.gated ? 2 : 1;
    using Stored = ops::AttentionPrep::Stored;
    ops::AttentionPrep prep{.kv_layer = layer,
                            .heads = c_.heads,
                            .kv_heads = c_.kv_heads,
                            .head_size = c_.head_size,
                            .has_q_norm = true,
                            .has_k_norm = true,
                            .norm_all_heads = c_.norm_all_heads,
                            .stored = c_.keys_as_values ? Stored::key_as_value : Stored::key_and_value};
    prep.q_norm = norm(c_.norm_all_heads ? query : c_.head_size);
    prep.k_norm = norm(c_.norm_all_heads ? key : c_.head_size);
    plan_.kv_layers.push_back({c_.kv_heads, c_.head_size, 0});
    ops::Project project{.parts = {{weight(c_.type, factor * query, c_.hidden)}, {weight(c_.type, key, c_.hidden)}},
                         .in = x};
    if (!c_.keys_as_values) project.parts.push_back({weight(c_.type, key, c_.hidden)});
    prep.in = project.out = buffer(factor * query + prep.stored_parts() * key);
    prep.out = buffer(query);
    if (c_.gated) prep.gate = buffer(query);
    add(project, layer);
    add(prep, layer);
    add(ops::Attend{.kv_layer = layer,
                    .heads = c_.heads,
                    .kv_heads = c_.kv_heads,
                    .head_size = c_.head_size,
                    .scale = 0.3f,
                    .in = prep.out,
                    .out = buffer(query),
                    .gate = prep.gate},
        layer);
    return static_cast<ops::BufferId>(plan_.buffers.size() - 1);
  }
  ops::BufferId delta_net(ops::BufferId x, int layer) {
    const ops::DeltaHeads d{c_.kv_heads, c_.heads, c_.head_size, c_.head_size};
    const int width = c_.heads * c_.head_size;
    plan_.state_layers.push_back({d.channels(), 4, d.value_heads, d.key_size, d.value_size});
    const ops::BufferId projected = buffer(d.projected()), prepared = buffer(d.prepared()), scanned = buffer(width);
    add(ops::Project{.parts = {{weight(c_.type, d.channels() + width, c_.hidden)},
                               {weight(DType::f32, d.value_heads, c_.hidden)},
                               {weight(DType::f32, d.value_heads, c_.hidden)}},
                     .in = x,
                     .out = projected},
        layer);
    add(ops::DeltaPrep{.state_layer = layer,
                       .heads = d,
                       .convolution = weight(DType::f32, d.channels(), 4, 2.0f),
                       .rate = vector(d.value_heads, -0.5f),
                       .dt_bias = vector(d.value_heads, 0.0f),
                       .query_scale = 0.2f,
                       .in = projected,
                       .out = prepared},
        layer);
    add(ops::DeltaScan{.state_layer = layer, .heads = d, .in = prepared, .out = scanned}, layer);
    const ops::BufferId out = buffer(width);
    add(ops::DeltaOut{.heads = d, .norm = norm(c_.head_size), .in = scanned, .gate = projected, .out = out}, layer);
    return out;
  }
  ops::BufferId feed_forward(ops::BufferId x, int layer) {
    const ops::BufferId out = buffer(c_.feed_forward);
    add(ops::GatedPair{.gate = weight(c_.type, c_.feed_forward, c_.hidden),
                       .up = weight(c_.up == DType::f32 ? c_.type : c_.up, c_.feed_forward, c_.hidden),
                       .in = x,
                       .out = out},
        layer);
    return out;
  }
  void project_back(ops::BufferId from, ops::BufferId h, int layer, std::optional<DType> type = {}) {
    const int width = plan_.buffers[static_cast<std::size_t>(from)].width;
    const ops::WeightRef w = weight(c_.type == DType::f32 ? c_.type : type.value_or(c_.type), c_.hidden, width);
    if (!c_.sandwich) {
      add(ops::ProjectAdd{.weight = w, .in = from, .out = h}, layer);
      return;
    }
    const ops::BufferId added = buffer(c_.hidden);
    add(ops::ProjectAdd{.weight = w, .add = false, .in = from, .out = added}, layer);
    add(ops::ResidualNorm{.residual = h,
                          .addends = {{.in = added, .has_norm = true, .norm = norm(c_.hidden)}},
                          .scale = 0.9f,
                          .norm = {}},
        layer);
  }
  void experts(ops::BufferId x, ops::BufferId out, bool adds, int layer) {
    constexpr int kUsed = 2;
    const ops::BufferId routes = buffer(2 * (kUsed + 1));
    add(ops::Route{.weight = weight(DType::f32, c_.experts, c_.hidden),
                   .shared_gate = vector(c_.hidden, 0.0f),
                   .renormalise = true,
                   .shared = true,
                   .used = kUsed,
                   .in = x,
                   .out = routes},
        layer);
    const int width = c_.feed_forward, shared = width / 2;
    ops::Experts experts{.add = adds, .slots = kUsed + 1, .in = x, .routes = routes, .out = out};
    experts.routed = {.gate = weight(c_.type, c_.experts * width, c_.hidden),
                      .up = weight(c_.type, c_.experts * width, c_.hidden),
                      .down = weight(c_.type, c_.experts * c_.hidden, width),
                      .count = c_.experts,
                      .width = width};
    experts.shared = {.gate = weight(c_.type, shared, c_.hidden),
                      .up = weight(c_.type, shared, c_.hidden),
                      .down = weight(c_.type, c_.hidden, shared),
                      .count = 1,
                      .width = shared};
    add(experts, layer);
  }

  const Case c_;
  std::mt19937 random_{23};
  std::vector<std::unique_ptr<OwnedWeight>> weights_;
  ops::Plan plan_;
};

// Three sequences whose rows come in batches of 1, 2, 3, 7 and 97 rows and of all three at once; the logits of all
// rows.
std::vector<float> run(const ops::Plan& plan, Compute compute, int threads, bool fused,
                       std::vector<backend::Choice> choices = {}, bool concurrent = false) {
  struct Nothing final : backend::StepObserver {
    void after_step(int, const ops::Buffer&, std::span<const float>, int) override {}
  } nothing;
  constexpr int kPages = 2, kSequences = 3;
  auto prepared = backend::prepare(plan, {.compute = compute,
                                          .threads = threads,
                                          .max_batch_rows = 128,
                                          .max_pages = kPages * kSequences,
                                          .pack_in_memory = true,
                                          .choices = std::move(choices),
                                          .concurrent = concurrent,
                                          .max_slots = kSequences})
                      .value();
  if (!fused) prepared->observe(&nothing);
  const std::int32_t pages[kSequences][kPages] = {{5, 2}, {0, 4}, {3, 1}};
  const backend::SequencePages sequences[kSequences] = {
      {.full = pages[0], .slot = 2}, {.full = pages[1], .slot = 0}, {.full = pages[2], .slot = 1}};
  std::int32_t lengths[kSequences] = {};
  std::vector<float> all;
  struct Piece {
    int sequence, count;
  };
  const std::vector<Piece> batches[] = {
      {{0, 1}},          {{0, 2}},  {{1, 1}, {0, 1}},         {{0, 3}},
      {{2, 7}},          {{1, 97}}, {{0, 1}, {2, 1}, {1, 1}}, {{2, 4}, {1, 1}, {0, 4}},
      {{0, 40}, {2, 21}}};
  for (const auto& batch : batches) {
    std::vector<backend::Row> rows;
    for (const Piece& piece : batch) {
      for (int i = 0; i < piece.count; ++i) {
        const std::int32_t position = lengths[piece.sequence]++;
        rows.push_back({(position * position * 3 + 11 * piece.sequence) % kVocabulary, piece.sequence, position, true});
      }
    }
    const Status status = prepared->run({rows, sequences});
    EXPECT_TRUE(status.has_value()) << status.error().message;
    for (std::size_t i = 0; status && i < rows.size(); ++i) {
      const auto logits = prepared->logits(static_cast<int>(i));
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  return all;
}

class Fusion : public testing::TestWithParam<Case> {};

TEST_P(Fusion, GivesTheBitsOfSingleSteps) {
  const Model model(GetParam());
  for (const Compute compute : {Compute::automatic, Compute::f32}) {
    const std::vector<float> expected = run(model.plan(), compute, 1, false);
    for (const int threads : {1, 2, 3, 5, 8}) {
      EXPECT_TRUE(run(model.plan(), compute, threads, true) == expected)
          << threads << " threads" << (compute == Compute::f32 ? ", float32" : "");
    }
    EXPECT_TRUE(run(model.plan(), compute, 3, false) == expected) << "single steps on 3 threads";
  }
}

// Of what needs nothing of each other, no thread waits for another: the same bits, with an observer too, who sees the
// plan's own order.
TEST_P(Fusion, GivesTheSameBitsSideBySide) {
  const Model model(GetParam());
  const backend::PrepareOptions options{.threads = 1, .max_batch_rows = 1, .max_pages = 1, .concurrent = true};
  const auto prepared = backend::prepare(model.plan(), options).value();
  const auto& dispatches = prepared->schedule().dispatches;
  const auto together = std::ranges::count_if(dispatches, [](const auto& d) { return !d.meets; });
  EXPECT_EQ(together, GetParam().parallel || GetParam().dense ? 4 : 0);  // two in each layer
  if (together == 0) return;
  for (const Compute compute : {Compute::automatic, Compute::f32}) {
    const std::vector<float> expected = run(model.plan(), compute, 1, false);
    for (const int threads : {1, 2, 3, 4, 8}) {
      EXPECT_TRUE(run(model.plan(), compute, threads, true, {}, true) == expected)
          << threads << " threads" << (compute == Compute::f32 ? ", float32" : "");
    }
    EXPECT_TRUE(run(model.plan(), compute, 3, false, {}, true) == expected) << "single steps on 3 threads";
  }
}

// Whatever a profile may choose (docs/design/0015-tuning.md): each knob's values, for the products of all shapes in all
// regimes.
TEST_P(Fusion, GivesTheSameBitsWhateverIsChosen) {
  const Model model(GetParam());
  const std::vector<float> expected = run(model.plan(), Compute::automatic, 4, true);
  const auto prepared = backend::prepare(model.plan(), {.threads = 4, .max_batch_rows = 1, .max_pages = 1}).value();
  constexpr auto kLast = static_cast<int>(backend::Regime::many);
  for (const backend::Candidates& candidates : prepared->candidates(backend::Regime::many)) {
    for (const int value : candidates.values) {
      std::vector<backend::Choice> choices;
      for (int regime = 0; regime <= kLast; ++regime) {
        for (const std::string& shape : candidates.shapes) {
          choices.push_back({static_cast<backend::Regime>(regime), candidates.knob, shape, value});
        }
      }
      EXPECT_TRUE(run(model.plan(), Compute::automatic, 4, true, choices) == expected)
          << backend::describe(candidates.knob, value);
    }
  }
}

TEST(Choices, ChangeTheDescriptionAndNotTheRoute) {
  const Model model(Case{"plain", DType::q4_0, 96, 4, 2, 24, 160});
  backend::PrepareOptions options{.threads = 2, .max_batch_rows = 4, .max_pages = 1};
  const auto plain = backend::prepare(model.plan(), options).value();
  const auto& dispatches = plain->schedule().dispatches;
  const auto pair =
      std::ranges::find_if(dispatches, [](const auto& d) { return d.shape.starts_with("GatedPair Q4_0"); });
  ASSERT_NE(pair, dispatches.end());
  options.choices = {{backend::Regime::one_long, backend::Knob::prefetch, pair->shape, 4096, 1.25},
                     {backend::Regime::many, backend::Knob::threads, "", 1, 1.5},
                     {backend::Regime::many, backend::Knob::prefetch, "no such shape", 4096, 2.0},
                     {backend::Regime::many, backend::Knob::tile, "", 1'000'000, 2.0},
                     {backend::Regime::many, backend::Knob::threads, "", 3, 2.0}};
  const auto chosen = backend::prepare(model.plan(), options).value();
  EXPECT_EQ(chosen->schedule().route, plain->schedule().route);
  const auto& of_pair = chosen->schedule().dispatches[static_cast<std::size_t>(pair - dispatches.begin())].choices;
  EXPECT_THAT(of_pair,
              testing::Contains("profile: prefetch 4096 bytes ahead for 1 row, long context, 1.25 times the built-in"));
  EXPECT_THAT(pair->choices, testing::Each(testing::StartsWith("built-in: ")));
  // What names nothing that is here, or no candidate, is left out.
  EXPECT_THAT(chosen->schedule().choices,
              testing::AllOf(testing::Contains("profile: 1 thread for many rows, 1.50 times the built-in"),
                             testing::Not(testing::Contains(testing::HasSubstr("2.00 times")))));
}

TEST_P(Fusion, EqualsTheDefinition) {
  const Model model(GetParam());
  // The first row of sequence 0 is the first batch; rows 1 and 2 the second.
  const std::vector<std::int32_t> tokens{0, 3, 12};
  const ops::ref::Rows expected = ops::ref::Interpreter(model.plan()).run(tokens, 3);
  const std::vector<float> actual = run(model.plan(), Compute::f32, 3, true);
  double difference = 0, squares = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double e = double{expected.values[i]}, d = double{actual[i]} - e;
    difference += d * d;
    squares += e * e;
  }
  EXPECT_LT(std::sqrt(difference / squares), 1e-5);
}

// One row passes one barrier for each dispatch, by construction; so these are the phases of a layer.
TEST_P(Fusion, CoversALayerInFewDispatches) {
  const Model model(GetParam());
  const auto count = [](const std::vector<Dispatch>& dispatches) {
    int phases = 0;
    for (const Dispatch& d : dispatches) phases += d.barriers(1);
    return phases;
  };
  const auto dispatches = cover(model.plan(), true);
  EXPECT_EQ(count(dispatches), static_cast<int>(dispatches.size()));
  const int per_layer = (static_cast<int>(dispatches.size()) - 2) / 2;  // embedding and head apart
  EXPECT_LE(per_layer, GetParam().dense ? 8 : GetParam().sandwich ? 7 : GetParam().experts > 0 ? 6 : 5);
  EXPECT_GT(cover(model.plan(), false).size(), dispatches.size());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Fusion,
    testing::Values(
        Case{"floats_odd", DType::f32, 37, 3, 1, 20, 45}, Case{"one_head", DType::f32, 24, 1, 1, 12, 17},
        Case{"blocks_across_heads", DType::q4_0, 96, 4, 2, 24, 160},
        Case{"blocks_across_threads", DType::q4_k, 256, 4, 1, 64, 768},
        Case{"odd_heads_gated", DType::q8_0, 64, 9, 3, 32, 96, true},
        Case{"gated_across_heads", DType::q6_k, 256, 8, 8, 96, 256, true},
        Case{"norm_over_all_heads", DType::q4_1, 64, 4, 4, 16, 64, false, true},
        Case{"keys_as_values", DType::q8_0, 32, 2, 1, 48, 64, false, false, true},
        Case{"sandwich", DType::q5_0, 64, 2, 2, 16, 224, false, false, false, true},
        Case{"up_of_another_type", DType::q4_k, 256, 2, 1, 128, 512, false, false, false, false, DType::q8_0},
        Case{"experts", DType::q8_0, 64, 2, 1, 32, 64, false, false, false, false, DType::f32, 5},
        Case{"experts_of_256", DType::q4_k, 256, 2, 1, 128, 512, false, false, false, false, DType::f32, 3},
        Case{"recurrent", DType::q8_0, 64, 6, 3, 16, 96, false, false, false, false, DType::f32, 0, true},
        Case{"recurrent_of_256", DType::q5_k, 256, 4, 2, 64, 256, false, false, false, false, DType::f32, 0, true},
        Case{"recurrent_floats", DType::f32, 30, 5, 5, 10, 33, false, false, false, false, DType::f32, 0, true},
        Case{.name = "parallel",
             .type = DType::q8_0,
             .hidden = 96,
             .heads = 4,
             .kv_heads = 2,
             .head_size = 24,
             .feed_forward = 160,
             .parallel = true},
        Case{.name = "parallel_of_256",
             .type = DType::q4_k,
             .hidden = 256,
             .heads = 4,
             .kv_heads = 1,
             .head_size = 64,
             .feed_forward = 768,
             .parallel = true},
        Case{.name = "experts_beside_dense",
             .type = DType::q8_0,
             .hidden = 64,
             .heads = 2,
             .kv_heads = 1,
             .head_size = 32,
             .feed_forward = 192,
             .experts = 5,
             .dense = true},
        Case{.name = "experts_of_256_beside_dense",
             .type = DType::q4_k,
             .hidden = 256,
             .heads = 2,
             .kv_heads = 1,
             .head_size = 128,
             .feed_forward = 512,
             .experts = 3,
             .dense = true}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace adze::cpu
