// What of each family's plan could run side by side (docs/design/0020). What families compute at the same time is one
// step already: these are all that is left.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "golden/oracle.hpp"
#include "model/model.hpp"
#include "ops/independence.hpp"

namespace adze::test {
namespace {

class Independence : public OracleTest {};

TEST_P(Independence, WhatIsLeft) {
  const OracleRow& row = GetParam();
  const Oracle oracle(row.model);
  const auto model = model::Model::load(oracle.gguf(row.type));
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const ops::Plan& plan = model->plan();
  std::map<std::string, int> found;
  for (const auto& [first, second] : ops::independent_steps(plan)) {
    std::string names;
    for (int i = first; i <= second; ++i) {
      names += fmt::format("{}{}",
                           i == first    ? ""
                           : i == second ? " | "
                                         : ", ",
                           ops::step_name(plan.steps[static_cast<std::size_t>(i)]));
    }
    ++found[names];
  }
  using Counts = std::map<std::string, int>;
  const std::map<std::string, Counts> expected = {
      {"gemma4-e2b", {{"Embed | Embed", 1}, {"Embed | Norm", 1}, {"ResidualNorm | Norm", 1}}},
      {"gemma4-moe",
       {{"Norm | Norm", 6},
        {"Norm, Norm | Norm", 6},
        {"Norm, Norm | GatedPair", 6},
        {"Norm, GatedPair, ProjectAdd, Norm | Route", 6}}},
      {"cohere2", {{"Project, AttentionPrep, Attend, ProjectAdd | GatedPair", 5}}}};
  const auto of_model = expected.find(row.model);
  EXPECT_EQ(found, of_model == expected.end() ? Counts() : of_model->second);
}

INSTANTIATE_TEST_SUITE_P(Families, Independence,
                         testing::Values(OracleRow{"llama-gqa-rope3", "Q8_0"}, OracleRow{"qwen3-dense", "Q8_0"},
                                         OracleRow{"gemma2", "BF16"}, OracleRow{"gemma3-text", "Q8_0"},
                                         OracleRow{"gemma4-e2b", "BF16"}, OracleRow{"gemma4-moe", "BF16"},
                                         OracleRow{"qwen3-moe", "BF16"}, OracleRow{"qwen3_5-dense", "Q8_0"},
                                         OracleRow{"qwen3_5-moe", "BF16"}, OracleRow{"qwen3-next", "BF16"},
                                         OracleRow{"gpt-oss", "BF16"}, OracleRow{"phi3-longrope", "BF16"},
                                         OracleRow{"cohere2", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
