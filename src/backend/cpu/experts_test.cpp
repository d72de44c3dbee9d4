// Mixtures of experts: Route and Experts against their definition, for every table, several weight types and shapes
// that divide by nothing; that no bit depends on how many rows meet at an expert, or on threads; and that the weights
// of experts that no row was routed to are not read.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_features.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/owned_weight.hpp"

namespace adze::cpu {
namespace {

using backend::Compute;
using ops::ref::Rows;
using tensor::DType;
using test::OwnedWeight;
using test::SlicedWeight;

constexpr int kVocabulary = 61;

struct Case {
  const char* name;
  DType gate, up, down;
  int hidden, width, experts, used;
  bool fused = false, biases = false;  // fused: gate and up rows of an expert in one weight
  int shared_width = 0;
  DType shared = DType::f32;
  ops::Activation activation = ops::Activation::silu;
};

// Embed, Norm, Route, Experts, Head: rows meet nowhere but at the experts.
class Model {
 public:
  explicit Model(const Case& c) {
    plan_.hidden_size = c.hidden;
    plan_.vocabulary_size = kVocabulary;
    plan_.context_length = backend::kPageTokens;
    plan_.kv_layers = {{1, 16, 0}};
    const int slots = c.used + (c.shared_width > 0 ? 1 : 0);
    plan_.buffers = {{"h", c.hidden}, {"x", c.hidden}, {"routes", 2 * slots}};
    ops::Experts experts{.activation = c.activation, .slots = slots, .in = 1, .routes = 2, .out = 0};
    experts.routed = {.down = weight(c.down, c.experts * c.hidden, c.width), .count = c.experts, .width = c.width};
    if (c.fused) {
      const ops::WeightRef both = weight(c.gate, c.experts * 2 * c.width, c.hidden);
      experts.routed.gate = part_of_each(both, c.experts, 0, c.width);
      experts.routed.up = part_of_each(both, c.experts, c.width, c.width);
    } else {
      experts.routed.gate = weight(c.gate, c.experts * c.width, c.hidden);
      experts.routed.up = weight(c.up, c.experts * c.width, c.hidden);
    }
    if (c.biases) {
      experts.routed.gate_bias = weight(DType::f32, c.experts, c.width);
      experts.routed.up_bias = weight(DType::f32, c.experts, c.width);
      experts.routed.down_bias = weight(DType::f32, c.experts, c.hidden);
    }
    ops::Route route{.weight = weight(DType::f32, c.experts, c.hidden),
                     .renormalise = true,
                     .shared = c.shared_width > 0,
                     .used = c.used,
                     .in = 1,
                     .out = 2};
    if (c.biases) route.bias = weight(DType::f32, 1, c.experts);
    if (c.shared_width > 0) {
      route.shared_gate = weight(DType::f32, 1, c.hidden);
      experts.shared = {.gate = weight(c.shared, c.shared_width, c.hidden),
                        .up = weight(c.shared, c.shared_width, c.hidden),
                        .down = weight(c.shared, c.hidden, c.shared_width),
                        .count = 1,
                        .width = c.shared_width};
    }
    add(ops::Embed{.table = weight(DType::f32, kVocabulary, c.hidden), .out = 0});
    add(ops::Norm{.norm = {}, .in = 0, .out = 1});
    add(route);
    add(experts);
    add(ops::Head{.norm = {}, .weight = weight(DType::f32, kVocabulary, c.hidden), .in = 0});
  }
  const ops::Plan& plan() const { return plan_; }

 private:
  ops::WeightRef weight(DType type, int rows, int columns) {
    std::normal_distribution<float> normal(0.0f, 1.5f / std::sqrt(static_cast<float>(columns)));
    std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
    for (float& x : values) x = normal(random_);
    weights_.push_back(std::make_unique<OwnedWeight>(type, rows, columns, values));
    return weights_.back()->ref();
  }
  ops::WeightRef part_of_each(ops::WeightRef both, int experts, int first, int count) {
    parts_.push_back(std::make_unique<SlicedWeight>(*both, experts, first, count));
    return parts_.back()->ref();
  }
  void add(ops::Step step) {
    plan_.steps.push_back(std::move(step));
    plan_.step_layers.push_back(0);
  }

  std::mt19937 random_{17};
  std::vector<std::unique_ptr<OwnedWeight>> weights_;
  std::vector<std::unique_ptr<SlicedWeight>> parts_;
  ops::Plan plan_;
};

// Runs tokens as one batch; the logits of every row [n * V].
class Backend {
 public:
  Backend(const ops::Plan& plan, Compute compute, int threads, const char* kernel_set = "")
      : prepared_(backend::prepare(plan, {.compute = compute,
                                          .kernel_set = kernel_set,
                                          .threads = threads,
                                          .max_batch_rows = backend::kPageTokens,
                                          .max_pages = 1})
                      .value()) {}
  std::vector<float> run(std::span<const std::int32_t> tokens) {
    std::vector<backend::Row> rows;
    for (const std::int32_t token : tokens) rows.push_back({token, 0, static_cast<std::int32_t>(rows.size()), true});
    const std::int32_t page = 0;
    const backend::SequencePages pages{{&page, 1}};
    const Status status = prepared_->run({rows, {&pages, 1}});
    EXPECT_TRUE(status.has_value()) << status.error().message;
    std::vector<float> all;
    for (std::size_t i = 0; status && i < rows.size(); ++i) {
      const auto logits = prepared_->logits(static_cast<int>(i));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

 private:
  std::unique_ptr<backend::Prepared> prepared_;
};

std::vector<std::int32_t> some_tokens(int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(i * i * 7 % kVocabulary);
  return tokens;
}

double relative_rms(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0, squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = double{expected[i]};
    difference += (double{actual[i]} - e) * (double{actual[i]} - e);
    squares += e * e;
  }
  return std::sqrt(difference / squares);
}

class Mixtures : public testing::TestWithParam<Case> {};

TEST_P(Mixtures, EqualTheirDefinition) {
  const Model model(GetParam());
  for (const int count : {1, 3, 8, 37}) {
    const std::vector<std::int32_t> tokens = some_tokens(count);
    const Rows expected = ops::ref::Interpreter(model.plan()).run(tokens, count);
    for (const KernelTable* table : available_tables()) {
      EXPECT_LT(relative_rms(Backend(model.plan(), Compute::f32, 2, table->name).run(tokens), expected.values), 2e-6)
          << table->name << ", " << count << " rows";
      // Activations in int8 cost about half a percent each time that they are rounded.
      EXPECT_LT(relative_rms(Backend(model.plan(), Compute::automatic, 2, table->name).run(tokens), expected.values),
                0.03)
          << table->name << ", " << count << " rows";
    }
  }
}

TEST_P(Mixtures, BitsOfARowDoNotDependOnItsCompany) {
  const Model model(GetParam());
  const std::vector<std::int32_t> tokens = some_tokens(61);
  for (const Compute compute : {Compute::automatic, Compute::f32}) {
    std::vector<float> alone;
    Backend one(model.plan(), compute, 1);
    for (const std::int32_t& token : tokens) {
      const std::vector<float> logits = one.run({&token, 1});
      alone.insert(alone.end(), logits.begin(), logits.end());
    }
    for (const KernelTable* table : available_tables()) {
      for (const int threads : {1, 2, 3}) {
        Backend backend(model.plan(), compute, threads, table->name);
        std::vector<float> together;
        std::size_t done = 0;
        for (const std::size_t count : {1u, 2u, 3u, 5u, 13u, 37u}) {  // 61 in all
          const std::vector<float> logits = backend.run(std::span(tokens).subspan(done, count));
          together.insert(together.end(), logits.begin(), logits.end());
          done += count;
        }
        EXPECT_TRUE(together == alone) << table->name << ", " << threads << " threads"
                                       << (compute == Compute::f32 ? ", float32" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Mixtures,
    testing::Values(
        Case{"floats_odd", DType::f32, DType::f32, DType::f32, 40, 23, 7, 3},
        Case{"bf16_one_of_two", DType::bf16, DType::bf16, DType::bf16, 24, 17, 2, 1},
        Case{"all_of_them", DType::f16, DType::f16, DType::f16, 33, 9, 5, 5},
        Case{"mxfp4_gpt_oss", DType::mxfp4, DType::mxfp4, DType::mxfp4, 96, 64, 6, 4, false, true, 0, DType::f32,
             ops::Activation::swiglu_oai},
        Case{"q4_0_fused_gelu", DType::q4_0, DType::q4_0, DType::q8_0, 64, 96, 9, 2, true, false, 0, DType::f32,
             ops::Activation::gelu_tanh},
        Case{"two_types", DType::q4_1, DType::bf16, DType::f32, 64, 45, 4, 2, false, true},
        Case{"two_block_sizes", DType::q4_k, DType::q8_0, DType::q5_0, 256, 32, 5, 2},
        Case{"k_types_shared", DType::q4_k, DType::q4_k, DType::q6_k, 256, 256, 12, 3, false, false, 40, DType::bf16},
        Case{"shared_narrower", DType::q4_1, DType::q4_1, DType::q4_1, 64, 96, 5, 2, false, false, 32, DType::q8_0},
        Case{"shared_quantised", DType::f32, DType::f32, DType::f32, 64, 20, 3, 1, true, false, 96, DType::q8_0}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Routing, EqualsItsDefinition) {
  struct Scoring {
    ops::Route::Scoring scoring;
    bool renormalise, choice_bias, expert_scale;
  };
  constexpr int kHidden = 24, kExperts = 19, kUsed = 4, kRows = 21;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const auto floats = [&](int count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& x : values) x = normal(random);
    return values;
  };
  const OwnedWeight table(kVocabulary, kHidden, floats(kVocabulary * kHidden));
  const OwnedWeight router(kExperts, kHidden, floats(kExperts * kHidden)), gate(floats(kHidden));
  const OwnedWeight bias(floats(kExperts)), choice(floats(kExperts)), scale(floats(kExperts));
  struct Keep final : backend::StepObserver {
    std::vector<float> routes;
    void after_step(int step, const ops::Buffer&, std::span<const float> values, int) override {
      if (step == 1) routes.assign(values.begin(), values.end());
    }
  };
  using enum ops::Route::Scoring;
  for (const Scoring& s :
       {Scoring{softmax, false, false, false}, Scoring{softmax, true, false, true}, Scoring{softmax, true, true, false},
        Scoring{sigmoid, false, false, true}, Scoring{sigmoid, true, true, true}}) {
    const ops::Route route{.weight = router.ref(),
                           .bias = bias.ref(),
                           .choice_bias = s.choice_bias ? choice.ref() : nullptr,
                           .expert_scale = s.expert_scale ? scale.ref() : nullptr,
                           .shared_gate = gate.ref(),
                           .scoring = s.scoring,
                           .renormalise = s.renormalise,
                           .shared = true,
                           .logit_scale = 0.4f,
                           .scale = 1.25f,
                           .used = kUsed,
                           .in = 0,
                           .out = 1};
    ops::Plan plan;
    plan.hidden_size = kHidden;
    plan.vocabulary_size = kVocabulary;
    plan.context_length = backend::kPageTokens;
    plan.buffers = {{"h", kHidden}, {"routes", 2 * route.slots()}};
    plan.kv_layers = {{1, 16, 0}};
    plan.steps = {ops::Embed{.table = table.ref(), .out = 0}, route,
                  ops::Head{.norm = {}, .weight = table.ref(), .in = 0}};
    plan.step_layers = {0, 0, 0};
    Rows expected;
    const std::vector<std::int32_t> tokens = some_tokens(kRows);
    ops::ref::Interpreter(plan).run(tokens, 1, [&](int step, ops::BufferId, const Rows& rows) {
      if (step == 1) expected = rows;
    });
    auto prepared = backend::prepare(plan, {.threads = 2, .max_batch_rows = 32, .max_pages = 1}).value();
    Keep keep;
    prepared->observe(&keep);
    std::vector<backend::Row> rows;
    for (int i = 0; i < kRows; ++i) rows.push_back({tokens[static_cast<std::size_t>(i)], 0, i, false});
    const std::int32_t page = 0;
    const backend::SequencePages pages{{&page, 1}};
    ASSERT_TRUE(prepared->run({rows, {&pages, 1}}).has_value());
    ASSERT_EQ(keep.routes.size(), expected.values.size());
    for (std::size_t i = 0; i < keep.routes.size(); ++i) {
      EXPECT_NEAR(keep.routes[i], expected.values[i], 1e-5f * std::max(1.0f, std::fabs(expected.values[i]))) << i;
    }
  }
}

// A router whose logits are not finite must not choose as if nothing were: the row has no logits to go by.
TEST(Experts, ALogitThatIsNotFiniteIsNotHidden) {
  const OwnedWeight table(2, 2, {1, 1, 2, 1});
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    const OwnedWeight router(3, 2, {1, 0, bad, 0, 0, 1}), gate(6, 2, std::vector<float>(12, 1.0f));
    const OwnedWeight down(6, 2, std::vector<float>(12, 1.0f)), head(5, 2, std::vector<float>(10, 1.0f));
    ops::Plan plan;
    plan.hidden_size = 2;
    plan.vocabulary_size = 5;
    plan.context_length = backend::kPageTokens;
    plan.kv_layers = {{1, 16, 0}};
    plan.buffers = {{"h", 2}, {"routes", 4}, {"y", 2}};
    ops::Experts experts{.add = false, .slots = 2, .in = 0, .routes = 1, .out = 2};
    experts.routed = {.gate = gate.ref(), .up = gate.ref(), .down = down.ref(), .count = 3, .width = 2};
    plan.steps = {ops::Embed{.table = table.ref(), .out = 0},
                  ops::Route{.weight = router.ref(), .renormalise = true, .used = 2, .in = 0, .out = 1}, experts,
                  ops::Head{.norm = {}, .weight = head.ref(), .in = 2}};
    plan.step_layers = {0, 0, 0, 0};
    const auto prepared = backend::prepare(plan, {.compute = Compute::f32, .max_batch_rows = 2, .max_pages = 1});
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    const std::int32_t page = 0;
    const backend::SequencePages pages{{&page, 1}};
    const backend::Row rows[] = {{0, 0, 0, true}, {1, 0, 1, true}};
    ASSERT_TRUE((*prepared)->run({rows, {&pages, 1}}));
    for (const int row : {0, 1}) {
      EXPECT_TRUE((*prepared)->logit_maxima(row).empty()) << bad;
      for (const float logit : (*prepared)->logits(row)) EXPECT_FALSE(std::isfinite(logit)) << bad;
    }
    const std::vector<std::int32_t> tokens{0, 1};
    for (const float logit : ops::ref::Interpreter(plan).run(tokens, 2).values) EXPECT_TRUE(std::isnan(logit)) << bad;
  }
}

// --- what is not read ------------------------------------------------------------------------------------------------

// The weights of experts in a mapped file, each on pages of its own; those of some may not be touched.
class PagedExperts : public testing::Test {
 protected:
  static constexpr int kHidden = 64, kExperts = 8;
  const std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const int width_ = static_cast<int>(page_ / (kHidden * sizeof(float)));  // a page per expert and weight

  void SetUp() override {
    std::string path = testing::TempDir() + "adze-experts-XXXXXX";
    const int file = ::mkstemp(path.data());
    ASSERT_GE(file, 0);
    ::unlink(path.c_str());
    ASSERT_EQ(::ftruncate(file, static_cast<off_t>(3 * kExperts * page_)), 0);
    map_ = static_cast<std::byte*>(::mmap(nullptr, 3 * kExperts * page_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
    ASSERT_NE(static_cast<void*>(map_), MAP_FAILED);
    auto* values = reinterpret_cast<float*>(map_);
    for (std::size_t i = 0; i < 3 * kExperts * page_ / sizeof(float); ++i) values[i] = static_cast<float>(i % 7) - 3;
    for (int i = 0; i < 3; ++i) {
      const std::int64_t rows = i < 2 ? width_ : kHidden, columns = i < 2 ? kHidden : width_;
      views_[i] = {"experts", DType::f32, {{kExperts, rows, columns, 1}, 3}, {weights(i), kExperts * page_}};
    }
    // Token t has a one at place t, and expert t looks for it there.
    std::vector<float> one_hot(static_cast<std::size_t>(kExperts * kHidden));
    for (int t = 0; t < kExperts; ++t) one_hot[static_cast<std::size_t>(t * kHidden + t)] = 1.0f;
    table_ = std::make_unique<OwnedWeight>(kExperts, kHidden, one_hot);
    plan_.hidden_size = kHidden;
    plan_.vocabulary_size = kExperts;
    plan_.context_length = backend::kPageTokens;
    plan_.kv_layers = {{1, 16, 0}};
    plan_.buffers = {{"h", kHidden}, {"routes", 2}, {"y", kHidden}};
    const ops::Route route{.weight = table_->ref(), .used = 1, .in = 0, .out = 1};
    ops::Experts experts{.add = false, .slots = 1, .in = 0, .routes = 1, .out = 2};
    experts.routed = {.gate = &views_[0], .up = &views_[1], .down = &views_[2], .count = kExperts, .width = width_};
    plan_.steps = {ops::Embed{.table = table_->ref(), .out = 0}, route, experts,
                   ops::Head{.norm = {}, .weight = table_->ref(), .in = 2}};
    plan_.step_layers = {0, 0, 0, 0};
  }
  void TearDown() override { ::munmap(map_, 3 * kExperts * page_); }

  std::byte* weights(int which) { return map_ + static_cast<std::size_t>(which * kExperts) * page_; }
  void forbid(int expert) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(::mprotect(weights(i) + static_cast<std::size_t>(expert) * page_, page_, PROT_NONE), 0);
    }
  }

  std::byte* map_ = nullptr;
  tensor::TensorView views_[3];
  std::unique_ptr<OwnedWeight> table_;
  ops::Plan plan_;
};

TEST_F(PagedExperts, WithoutRowsAreNotRead) {
  const std::vector<std::int32_t> one{5}, several{6, 1, 1, 5, 6, 1, 1};
  Backend backend(plan_, Compute::automatic, 2);
  const std::vector<float> first = backend.run(one), second = backend.run(several);
  for (const int expert : {0, 2, 3, 4, 7}) forbid(expert);
  EXPECT_TRUE(backend.run(one) == first);
  EXPECT_TRUE(backend.run(several) == second);
}

TEST_F(PagedExperts, WithRowsAreRead) {  // so that the test above means something
  forbid(3);
  const std::vector<std::int32_t> tokens{3};
  EXPECT_DEATH(Backend(plan_, Compute::automatic, 1).run(tokens), "");
}

}  // namespace
}  // namespace adze::cpu
