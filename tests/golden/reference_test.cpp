// The Plan of each oracle model, run with the slow definitions of the steps, against the Hugging Face implementation.
// This proves family, loader and definitions; every backend is then tested against the same numbers (backend_test.cpp).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

constexpr double kTolerance = 1e-4;  // float weights or exactly dequantised ones, float32 activations

class Reference : public OracleTest {};

TEST_P(Reference, LastLogitsEqualTheOracle) {
  const Oracle oracle(GetParam().model);
  std::vector<const char*> prompts{"p1", "p7", "p70"};
  const std::string_view type = GetParam().type;
  if (type == "F32" || type.starts_with("HF")) prompts.push_back("p600");  // one of the slow ones is enough here
  for (const char* prompt : prompts) {
    const OracleModel loaded = load_oracle(oracle, GetParam().type, prompt);
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

INSTANTIATE_TEST_SUITE_P(Dense, Reference,
                         testing::Values(OracleRow{"gemma2", "BF16"}, OracleRow{"gemma3-text", "BF16"},
                                         OracleRow{"gemma3-text", "Q8_0"}, OracleRow{"gemma4-e2b", "BF16"},
                                         OracleRow{"gemma4-moe", "BF16"}, OracleRow{"granite", "BF16"},
                                         OracleRow{"cohere2", "BF16"}, OracleRow{"ministral3", "BF16"},
                                         OracleRow{"olmo2", "BF16"}, OracleRow{"phi3-longrope", "BF16"},
                                         OracleRow{"phi3", "Q8_0"}, OracleRow{"qwen2-bias", "BF16"},
                                         OracleRow{"qwen3-dense", "BF16"}, OracleRow{"qwen3-dense", "Q4_0"},
                                         OracleRow{"qwen3-dense", "Q8_0"}, OracleRow{"smollm3-nope", "Q8_0"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

INSTANTIATE_TEST_SUITE_P(Mixture, Reference,
                         testing::Values(OracleRow{"qwen3-moe", "BF16"}, OracleRow{"gpt-oss", "MXFP4"},
                                         OracleRow{"qwen3_5-moe", "BF16"}, OracleRow{"qwen3-next", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

// Float weights as safetensors: what GGUF's converter changes (permuted rows, rope factors) must not be missing.
INSTANTIATE_TEST_SUITE_P(
    Folders, Reference,
    testing::Values(OracleRow{"gemma3-text", "HF"}, OracleRow{"llama-attnbias", "HF"},
                    OracleRow{"llama-gqa-rope3", "HF"}, OracleRow{"mistral-swa", "HF"}, OracleRow{"granite", "HF"},
                    OracleRow{"cohere2", "HF"}, OracleRow{"ministral3", "HF"}, OracleRow{"olmo2", "HF"},
                    OracleRow{"phi3-longrope", "HF"}, OracleRow{"qwen3-dense", "HF"}, OracleRow{"qwen3_5-kvdiff", "HF"},
                    OracleRow{"qwen3_5-dense", "HF_VLM"}, OracleRow{"gemma4-e2b", "HF_VLM"},
                    OracleRow{"qwen3-moe", "HF"}, OracleRow{"qwen3-next", "HF"}, OracleRow{"qwen3_5-moe", "HF"},
                    OracleRow{"gemma4-moe", "HF"}, OracleRow{"gpt-oss", "HF"}, OracleRow{"gpt-oss", "HF_MXFP4"}),
    [](const auto& row) { return oracle_row_name(row.param); });

// The same weights under other rotations, against llama.cpp's float32 logits (the README says how they were made).
struct RopeCase {
  const char* name;  // in rope-scalings.safetensors
  const char* type;
  float factor;
  std::uint32_t original_context;
  float attention_factor = 1.0f, beta_fast = 32.0f, beta_slow = 1.0f;
};
class ReferenceRope : public testing::TestWithParam<RopeCase> {};

TEST_P(ReferenceRope, ScalingsOfTheMetadataEqualLlamaCpp) {
  const RopeCase& rope = GetParam();
  const Oracle oracle("llama-gqa-rope3");
  const std::filesystem::path folder = std::filesystem::path(ADZE_TEST_DATA) / "oracles/llama-gqa-rope3";
  const auto expected = SafetensorsFixture::open(folder / "rope-scalings.safetensors");
  GgufVariant variant(oracle.gguf("BF16"));
  const auto model = variant.remove_tensor("rope_freqs.weight")
                         .set_string("llama.rope.scaling.type", rope.type)
                         .set_f32("llama.rope.scaling.factor", rope.factor)
                         .set_u32("llama.rope.scaling.original_context_length", rope.original_context)
                         .set_f32("llama.rope.scaling.attn_factor", rope.attention_factor)
                         .set_f32("llama.rope.scaling.yarn_beta_fast", rope.beta_fast)
                         .set_f32("llama.rope.scaling.yarn_beta_slow", rope.beta_slow)
                         .load();
  ASSERT_TRUE(model.has_value()) << model.error().message;
  for (const char* prompt : {"p70", "p600"}) {
    const ops::ref::Rows logits = ops::ref::Interpreter(model->plan()).run(oracle.prompt(prompt), 1);
    EXPECT_LT(rel_rms(logits.values, expected.floats(fmt::format("{}.{}.last_logits", rope.name, prompt))), kTolerance)
        << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(Hybrid, Reference,
                         testing::Values(OracleRow{"qwen3_5-dense", "mtp-BF16"}, OracleRow{"qwen3_5-dense", "Q8_0"},
                                         OracleRow{"qwen3_5-k256", "Q4_K"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

INSTANTIATE_TEST_SUITE_P(Llama, ReferenceRope,
                         testing::Values(RopeCase{"linear4", "linear", 4.0f, 2048}, RopeCase{"yarn4", "yarn", 4.0f, 64},
                                         RopeCase{"yarn8b", "yarn", 8.0f, 512, 0.9f, 16.0f, 2.0f}),
                         [](const auto& row) { return std::string(row.param.name); });

// llama.cpp rounds the ends of YaRN's ramp for gpt-oss too; the model itself does not (families/gpt_oss.cpp).
TEST(ReferenceYarn, GptOssWithARoundedRampEqualsLlamaCpp) {
  const std::filesystem::path folder = oracle_folder("gpt-oss");
  if (folder.empty()) GTEST_SKIP() << "set ADZE_TEST_ORACLES to the folder of all oracles for gpt-oss";
  const Oracle oracle(folder);
  const OracleModel loaded = load_oracle(oracle, "MXFP4");
  const auto expected = SafetensorsFixture::open(folder / "expected-yarn-truncated.safetensors");
  model::RopeSettings rope = loaded.model->hyperparameters().rope;
  EXPECT_FALSE(rope.round_ramp);
  rope.round_ramp = true;
  ops::Plan plan = loaded.model->plan();
  plan.ropes = {model::make_rope(rope)};
  for (const char* prompt : {"p1", "p7", "p70", "p600"}) {
    const ops::ref::Rows logits = ops::ref::Interpreter(plan).run(oracle.prompt(prompt), 1);
    EXPECT_LT(rel_rms(logits.values, expected.floats(fmt::format("{}.last_logits", prompt))), kTolerance) << prompt;
  }
}

// The residual stream after every layer, and what attention and feed-forward added to it.
class ReferenceLayers : public OracleTest {};

TEST_P(ReferenceLayers, EveryLayerEqualsTheOracle) {
  const Oracle oracle(GetParam().model);
  const OracleModel loaded = load_oracle(oracle, GetParam().type, "p7");
  const ops::Plan& plan = loaded.model->plan();
  const ops::BufferId residual = std::get<ops::Embed>(plan.steps.front()).out;
  // What a part adds is in `added` where it is normalised before the sum, else it is the residual's change. A third
  // part (Gemma 4's per-layer embeddings) has no name in the oracle.
  const std::array<std::string, 2> parts{".self_attn", ".mlp"};
  std::map<int, std::vector<float>> residuals;  // of each layer so far; -1: the embedding
  std::map<int, std::size_t> summed, normed;    // parts of each layer so far
  ops::ref::Interpreter interpreter(plan);
  interpreter.run(oracle.prompt("p7"), 7, [&](int step, ops::BufferId buffer, const ops::ref::Rows& rows) {
    const int layer = plan.step_layers[static_cast<std::size_t>(step)];
    const std::string name = "p7.layer." + std::to_string(layer);
    const auto expect_part = [&](std::size_t part, std::span<const float> values) {
      if (part >= parts.size()) return;
      const std::string recurrent = name + ".linear_attn";
      const bool is_recurrent = part == 0 && oracle.expected().has(recurrent);
      const std::string tensor = is_recurrent ? recurrent : name + parts[part];
      EXPECT_LT(rel_rms(values, oracle.expected().floats(tensor)), kTolerance) << tensor;
    };
    if (plan.buffers[static_cast<std::size_t>(buffer)].name == "added") expect_part(normed[layer]++, rows.values);
    if (buffer != residual) return;
    if (layer >= 0 && normed[layer] == 0) {
      const std::vector<float>& before = residuals[summed[layer] == 0 ? layer - 1 : layer];
      std::vector<float> added(rows.values.size());
      for (std::size_t i = 0; i < added.size(); ++i) added[i] = rows.values[i] - before[i];
      expect_part(summed[layer], added);
    }
    ++summed[layer];
    residuals[layer] = rows.values;
  });
  EXPECT_LT(rel_rms(residuals[-1], oracle.expected().floats("p7.embed")), kTolerance);
  for (int layer = 0; layer < loaded.model->hyperparameters().layer_count(); ++layer) {
    const std::string name = "p7.layer." + std::to_string(layer) + ".out";
    EXPECT_LT(rel_rms(residuals[layer], oracle.expected().floats(name)), kTolerance) << name;
    EXPECT_GE(summed[layer], 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, ReferenceLayers,
                         testing::Values(OracleRow{"gemma2", "BF16"}, OracleRow{"gemma3-text", "BF16"},
                                         OracleRow{"gemma4-e2b", "BF16"}, OracleRow{"cohere2", "BF16"},
                                         OracleRow{"ministral3", "BF16"}, OracleRow{"olmo2", "BF16"},
                                         OracleRow{"phi3-longrope", "BF16"}, OracleRow{"qwen2-bias", "BF16"},
                                         OracleRow{"qwen3-dense", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Mixture, ReferenceLayers,
                         testing::Values(OracleRow{"qwen3-moe", "BF16"}, OracleRow{"gemma4-moe", "BF16"},
                                         OracleRow{"gpt-oss", "MXFP4"}, OracleRow{"qwen3_5-moe", "BF16"},
                                         OracleRow{"qwen3-next", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Hybrid, ReferenceLayers,
                         testing::Values(OracleRow{"qwen3_5-dense", "mtp-BF16"}, OracleRow{"qwen3_5-kvdiff", "HF"}),
                         [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Llama, ReferenceLayers,
                         testing::Values(OracleRow{"llama-gqa-rope3", "F32"}, OracleRow{"llama-gqa-rope3", "BF16"},
                                         OracleRow{"llama-attnbias", "HF"}, OracleRow{"mistral-swa", "HF"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
