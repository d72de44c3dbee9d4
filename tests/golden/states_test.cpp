// What recurrent layers remember after a prompt, against the Hugging Face implementation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

constexpr double kTolerance = 1e-4;

// The value heads in the oracle's order, grouped by key head, from the file's order. `size`: values of a head.
std::vector<float> grouped(const ops::DeltaHeads& heads, std::span<const float> values, std::size_t size) {
  if (!heads.tiled) return {values.begin(), values.end()};
  std::vector<float> out(values.size());
  const int r = heads.value_heads / heads.key_heads;
  for (int j = 0; j < heads.value_heads; ++j) {
    const int to = heads.key_head(j) * r + j / heads.key_heads;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(j) * size), size,
                out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(to) * size));
  }
  return out;
}

class ReferenceStates : public OracleTest {};

TEST_P(ReferenceStates, AfterAPromptEqualTheOracle) {
  const Oracle oracle(GetParam().model);
  const OracleModel loaded = load_oracle(oracle, GetParam().type);
  ops::ref::Interpreter interpreter(loaded.model->plan());
  interpreter.run(oracle.prompt("p70"), 1);
  int state_layer = 0;
  for (int i = 0; i < loaded.model->hyperparameters().layer_count(); ++i) {
    const ops::DeltaHeads& heads = loaded.model->hyperparameters().layers[static_cast<std::size_t>(i)].delta;
    if (heads.value_heads == 0) continue;
    const ops::ref::DeltaState& state = interpreter.state(state_layer++);
    const std::string name = fmt::format("p70.layer.{}", i);
    const auto head = static_cast<std::size_t>(heads.key_size) * static_cast<std::size_t>(heads.value_size);
    EXPECT_LT(rel_rms(grouped(heads, state.memory, head), oracle.expected().floats(name + ".recurrent_state")),
              kTolerance)
        << name;

    // The oracle keeps K inputs of each channel, of which the first is not needed any more.
    const std::vector<float> expected = oracle.expected().floats(name + ".conv_state");
    const auto kernel = static_cast<std::size_t>(state.inputs.count) + 1;
    const auto values = static_cast<std::size_t>(heads.value_heads) * static_cast<std::size_t>(heads.value_size);
    for (std::size_t tap = 1; tap < kernel; ++tap) {
      const auto row = state.inputs[static_cast<int>(tap) - 1];
      std::vector<float> inputs(row.begin(), row.end());
      const std::vector<float> v = grouped(heads, row.last(values), static_cast<std::size_t>(heads.value_size));
      std::copy(v.begin(), v.end(), inputs.end() - static_cast<std::ptrdiff_t>(values));
      std::vector<float> of_tap;
      for (std::size_t c = 0; c < inputs.size(); ++c) of_tap.push_back(expected.at(c * kernel + tap));
      EXPECT_LT(rel_rms(inputs, of_tap), kTolerance) << name << ", input " << tap;
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(state_layer), loaded.model->plan().state_layers.size());
  EXPECT_GT(state_layer, 0);
}

INSTANTIATE_TEST_SUITE_P(Hybrid, ReferenceStates,
                         testing::Values(OracleRow{"qwen3_5-dense", "mtp-BF16"}, OracleRow{"qwen3_5-moe", "BF16"},
                                         OracleRow{"qwen3-next", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
