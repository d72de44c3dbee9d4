// The Plan of each oracle model, run with the slow definitions of the steps, against the Hugging Face implementation.
// This proves family, loader and definitions; every backend is then tested against the same numbers (backend_test.cpp).
#include <gtest/gtest.h>

#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

constexpr double kTolerance = 1e-4;  // float weights or exactly dequantised ones, float32 activations

class Reference : public testing::TestWithParam<OracleRow> {};

TEST_P(Reference, LastLogitsEqualTheOracle) {
  const Oracle oracle(GetParam().model);
  const OracleModel loaded = load_oracle(oracle, GetParam().type);
  std::vector<const char*> prompts{"p1", "p7", "p70"};
  if (GetParam().type == std::string_view("F32")) prompts.push_back("p600");  // one of the slow ones is enough here
  for (const char* prompt : prompts) {
    ops::ref::Interpreter interpreter(loaded.model->plan());
    const ops::ref::Rows logits = interpreter.run(oracle.prompt(prompt), 1);
    EXPECT_LT(rel_rms(logits.values, oracle.last_logits(GetParam().type, prompt)), kTolerance) << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, Reference,
                         testing::Values(OracleRow{"llama-gqa-rope3", "F32"}, OracleRow{"llama-gqa-rope3", "BF16"},
                                         OracleRow{"llama-gqa-rope3", "Q4_0"}, OracleRow{"llama-gqa-rope3", "Q4_1"},
                                         OracleRow{"llama-gqa-rope3", "Q8_0"}, OracleRow{"llama-k256", "IQ4_XS"},
                                         OracleRow{"llama-k256", "Q3_K"}, OracleRow{"llama-k256", "Q4_K_M"},
                                         OracleRow{"llama-k256", "Q5_0"}, OracleRow{"llama-k256", "Q5_K"},
                                         OracleRow{"llama-k256", "Q6_K"}, OracleRow{"llama-tied-mqa-hd24", "Q8_0"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

// The residual stream after every layer, and what attention and feed-forward added to it.
class ReferenceLayers : public testing::TestWithParam<OracleRow> {};

TEST_P(ReferenceLayers, EveryLayerEqualsTheOracle) {
  const Oracle oracle(GetParam().model);
  const OracleModel loaded = load_oracle(oracle, GetParam().type);
  const ops::Plan& plan = loaded.model->plan();
  const ops::BufferId residual = std::get<ops::Embed>(plan.steps.front()).out;
  std::vector<float> before;
  int writes = 0;  // to the residual within a layer: attention's, then the feed-forward's
  ops::ref::Interpreter interpreter(plan);
  interpreter.run(oracle.prompt("p7"), 7, [&](int step, ops::BufferId buffer, const ops::ref::Rows& rows) {
    if (buffer != residual) return;
    const int layer = plan.step_layers[static_cast<std::size_t>(step)];
    if (layer < 0) {
      EXPECT_LT(rel_rms(rows.values, oracle.expected().floats("p7.embed")), kTolerance);
    } else {
      std::vector<float> added(rows.values.size());
      for (std::size_t i = 0; i < added.size(); ++i) added[i] = rows.values[i] - before[i];
      const bool is_feed_forward = writes++ % 2 == 1;
      const std::string name = "p7.layer." + std::to_string(layer);
      EXPECT_LT(rel_rms(added, oracle.expected().floats(name + (is_feed_forward ? ".mlp" : ".self_attn"))), kTolerance)
          << name;
      if (is_feed_forward) {
        EXPECT_LT(rel_rms(rows.values, oracle.expected().floats(name + ".out")), kTolerance) << name;
      }
    }
    before = rows.values;
  });
  EXPECT_EQ(writes, 2 * loaded.model->hyperparameters().layer_count());
}

INSTANTIATE_TEST_SUITE_P(Llama, ReferenceLayers,
                         testing::Values(OracleRow{"llama-gqa-rope3", "F32"}, OracleRow{"llama-gqa-rope3", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
