#include "ops/work.hpp"

#include <gtest/gtest.h>

#include <array>

namespace adze::ops {
namespace {

using tensor::DType;

// A weight that is counted, never read.
tensor::TensorView weight(DType type, std::int64_t slices, std::int64_t rows, std::int64_t columns) {
  static const std::array<std::byte, 1 << 16> bytes{};
  const tensor::Shape shape{.dims = {slices, rows, columns, 1}, .rank = 3};
  return {"weight", type, shape, std::span(bytes).first(tensor::size_bytes(type, shape))};
}

TEST(Work, ProductsCountWeightsOnceAndRowsEach) {
  const tensor::TensorView quantised = weight(DType::q8_0, 1, 8, 64), floats = weight(DType::f16, 1, 4, 64);
  Plan plan;
  plan.steps.emplace_back(Project{.parts = {{&quantised, nullptr}, {&floats, nullptr}}, .in = 0, .out = 1});
  const Work work = work_of(plan, {.rows = 3, .wanted = 0, .sequences = 1, .depth = 0}, 2);
  EXPECT_EQ(work.weight_bytes, 8 * 68 + 4 * 128);
  EXPECT_EQ(work.byte_products, 3 * 8 * 64);
  EXPECT_EQ(work.float_products, 3 * 4 * 64);
  EXPECT_EQ(work.cache_bytes, 0);
}

TEST(Work, TheHeadServesWantedRows) {
  const tensor::TensorView head = weight(DType::q8_0, 1, 32, 32);
  Plan plan;
  plan.steps.emplace_back(Head{.norm = {}, .weight = &head, .in = 0});
  EXPECT_EQ(work_of(plan, {.rows = 5, .wanted = 2}, 2).byte_products, 2 * 32 * 32);
  EXPECT_EQ(work_of(plan, {.rows = 5, .wanted = 0}, 2).weight_bytes, 0);
}

TEST(Work, AttentionReadsWhatItsWindowShows) {
  Plan plan;
  plan.kv_layers = {{.kv_heads = 2, .head_size = 16, .window = 0}, {.kv_heads = 2, .head_size = 16, .window = 10}};
  plan.steps.emplace_back(Attend{.kv_layer = 0, .heads = 4, .kv_heads = 2, .head_size = 16});
  const double position = 2.0 * 2 * 16 * 2;  // of a layer: k and v, two heads, two bytes
  EXPECT_EQ(work_of(plan, {.rows = 3, .wanted = 3, .sequences = 3, .depth = 99}, 2 * position).cache_bytes,
            3 * 100 * position);
  plan.steps.emplace_back(Attend{.kv_layer = 1, .heads = 4, .kv_heads = 2, .head_size = 16, .window = 10});
  EXPECT_EQ(work_of(plan, {.rows = 1, .wanted = 1, .sequences = 1, .depth = 99}, 2 * position).cache_bytes,
            110 * position);
}

TEST(Work, ExpertsThatNoRowIsRoutedToAreNotRead) {
  const tensor::TensorView gate = weight(DType::q8_0, 4, 2, 32), shared = weight(DType::q8_0, 1, 2, 32);
  Experts step{.slots = 2, .in = 0, .routes = 1, .out = 2};
  step.routed = {.gate = &gate, .count = 4, .width = 2};
  step.shared = {.gate = &shared, .count = 1, .width = 2};
  Plan plan;
  plan.steps.emplace_back(step);
  const double expert = 2 * 34;
  const Work one = work_of(plan, {}, 2);
  EXPECT_EQ(one.weight_bytes, 2 * expert);  // one of the four, and the shared one
  EXPECT_EQ(one.byte_products, 2 * 2 * 32);
  const Work two = work_of(plan, {.rows = 2, .wanted = 2, .sequences = 2}, 2);
  EXPECT_DOUBLE_EQ(two.weight_bytes, (4 * (1 - 0.75 * 0.75) + 1) * expert);
  EXPECT_EQ(two.byte_products, 2 * one.byte_products);
}

TEST(Work, RecurrentStatesAreReadAndWritten) {
  Plan plan;
  plan.state_layers = {{.channels = 8, .kernel = 4, .value_heads = 2, .key_size = 4, .value_size = 8}};
  plan.steps.emplace_back(DeltaScan{.state_layer = 0, .heads = {}});
  EXPECT_EQ(work_of(plan, {.rows = 3, .sequences = 3, .depth = 1000}, 2).cache_bytes, 3 * 2 * 4 * 2 * 4 * 8);
}

}  // namespace
}  // namespace adze::ops
