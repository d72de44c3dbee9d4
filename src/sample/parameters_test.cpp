#include "sample/parameters.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/limits.hpp"

namespace adze::sample {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Parameters, NamesTheFieldItRefuses) {
  struct Case {
    const char* field;
    std::function<void(SamplerParameters&)> set;
  };
  const Case cases[] = {
      {"temperature", [](auto& p) { p.temperature = -1; }},
      {"temperature", [](auto& p) { p.temperature = kNan; }},
      {"temperature", [](auto& p) { p.temperature = kInf; }},
      {"top_k", [](auto& p) { p.top_k = -1; }},
      {"top_p", [](auto& p) { p.top_p = 1.01f; }},
      {"top_p", [](auto& p) { p.top_p = -0.1f; }},
      {"top_p", [](auto& p) { p.top_p = kNan; }},
      {"min_p", [](auto& p) { p.min_p = 2; }},
      {"typical_p", [](auto& p) { p.typical_p = -kInf; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = kInf; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = kNan; }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = -kInf; }},
      {"penalty_window", [](auto& p) { p.penalty_window = -2; }},
      {"dry_multiplier", [](auto& p) { p.dry_multiplier = -1; }},
      {"dry_base", [](auto& p) { p.dry_base = 0.5f; }},
      {"dry_allowed_length", [](auto& p) { p.dry_allowed_length = 0; }},
      {"dry_window", [](auto& p) { p.dry_window = -7; }},
      {"dry_breakers", [](auto& p) { p.dry_breakers = {10}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{191222191, 5.0f}}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{-1, 1.0f}}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{3, kInf}}; }},
      {"banned", [](auto& p) { p.banned = {-1}; }},
      {"allowed", [](auto& p) { p.allowed = {10}; }},
  };
  for (const Case& c : cases) {
    SamplerParameters parameters;
    c.set(parameters);
    const Status status = validate(parameters, 10);
    ASSERT_FALSE(status) << c.field;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.error().message.find(c.field), 0u) << status.error().message;
  }
  SamplerParameters many;
  many.logit_bias.assign(limits::kMaxLogitBiases + 1, {1, 1.0f});
  EXPECT_EQ(validate(many, 10).error().code, ErrorCode::invalid_argument);
}

TEST(Parameters, AcceptsTheEdges) {
  SamplerParameters p;
  EXPECT_TRUE(validate(p, 10));
  p.temperature = 1e-30f;
  p.top_p = 0;
  p.min_p = 1;
  p.typical_p = 0;
  p.penalty_window = -1;
  p.dry_window = -1;
  p.presence_penalty = -2;
  p.logit_bias = {{0, -100.0f}, {9, 100.0f}};
  EXPECT_TRUE(validate(p, 10));
  p.temperature = 2;
  p.min_p = 0;
  EXPECT_TRUE(validate(p, 10));
}

TEST(Parameters, DescribesTheChainInForce) {
  SamplerParameters p;
  p.temperature = 0.8f;
  p.seed = 7;
  EXPECT_EQ(describe_chain(p), "temperature 0.8 -> draw (seed 7)");
  p.logit_bias = {{1, 2.0f}};
  p.repetition_penalty = 1.1f;
  p.dry_multiplier = 0.5f;
  p.top_k = 40;
  p.typical_p = 0.9f;
  p.top_p = 0.95f;
  p.min_p = 0.05f;
  EXPECT_EQ(describe_chain(p),
            "logit-bias (1 tokens) -> penalties (repetition 1.1; last 64) -> dry 0.5 (base 1.75, from 2 tokens; all "
            "tokens) -> top-k 40 -> typical-p 0.9 -> top-p 0.95 -> min-p 0.05 -> temperature 0.8 -> draw (seed 7)");
  p = {};
  p.temperature = 0;
  p.top_k = 40;
  EXPECT_EQ(describe_chain(p), "argmax");
  p.allowed = {1, 2, 3};
  EXPECT_EQ(describe_chain(p), "allow 3 tokens -> argmax");
}

}  // namespace
}  // namespace adze::sample
