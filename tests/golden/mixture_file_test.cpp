// What Model::load makes of mixtures of experts, over oracle files with one thing changed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/half.hpp"
#include "base/limits.hpp"
#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class MixtureFile : public testing::Test {
 protected:
  void SetUp() override {
    if (oracle_folder("qwen3-moe").empty() || oracle_folder("gpt-oss").empty()) {
      GTEST_SKIP() << "set ADZE_TEST_ORACLES to the folder of all oracles for qwen3-moe and gpt-oss";
    }
  }
  static GgufVariant qwen3_moe() { return GgufVariant(Oracle("qwen3-moe").gguf("BF16")); }
  static GgufVariant gpt_oss() { return GgufVariant(Oracle("gpt-oss").gguf("MXFP4")); }
};

template <class Variant>
Error refusal(Variant&& variant) {
  auto model = variant.load();
  EXPECT_FALSE(model.has_value()) << "loaded";
  return model ? Error{} : model.error();
}

TEST_F(MixtureFile, ExpertsAreViewsOfTheFile) {
  auto model = model::Model::load(Oracle("qwen3-moe").gguf("BF16"));
  ASSERT_TRUE(model.has_value()) << model.error().message;
  int mixtures = 0;
  for (const ops::Step& step : model->plan().steps) {
    const auto* experts = std::get_if<ops::Experts>(&step);
    if (experts == nullptr) continue;
    const std::string layer = fmt::format("blk.{}.", mixtures++);
    const ops::Experts::Weights& w = experts->routed;
    for (const auto& [weight, name] :
         {std::pair{w.gate, "ffn_gate_exps"}, {w.up, "ffn_up_exps"}, {w.down, "ffn_down_exps"}}) {
      const tensor::TensorView* stored = model->weights().find(layer + name + ".weight");
      ASSERT_NE(stored, nullptr);
      EXPECT_EQ(weight->bytes.data(), stored->bytes.data()) << name;
      EXPECT_EQ(weight->shape[0], 8) << name;
    }
  }
  EXPECT_EQ(mixtures, 4);
  EXPECT_EQ(model->hyperparameters().mixture.used, 2);
}

TEST_F(MixtureFile, SettingsThatAreNotComputedAreRefusedByName) {
  EXPECT_THAT(refusal(qwen3_moe().set_bool("qwen3moe.expert_weights_norm", false)).message,
              HasSubstr("qwen3moe.expert_weights_norm"));
  EXPECT_THAT(refusal(qwen3_moe().set_u32("qwen3moe.expert_gating_func", 2)).message,
              HasSubstr("qwen3moe.expert_gating_func"));
  EXPECT_THAT(refusal(qwen3_moe().set_u32("qwen3moe.expert_group_count", 4)).message,
              AllOf(HasSubstr("experts chosen by group"), HasSubstr("qwen3moe.expert_group_count")));
  EXPECT_THAT(refusal(qwen3_moe().set_u32("qwen3moe.leading_dense_block_count", 1)).message,
              HasSubstr("experts in some layers only"));
  EXPECT_THAT(refusal(gpt_oss().set_u32("gpt-oss.expert_shared_feed_forward_length", 32)).message,
              HasSubstr("a shared expert"));
}

TEST_F(MixtureFile, NumbersOutOfRangeAreRefusedByKey) {
  const auto allowed = [](std::int64_t max) { return HasSubstr(fmt::format("allowed is 1 to {}", max)); };
  EXPECT_THAT(refusal(qwen3_moe().set_u32("qwen3moe.expert_count", 0)).message, allowed(limits::kMaxExperts));
  EXPECT_THAT(refusal(qwen3_moe().set_u32("qwen3moe.expert_count", limits::kMaxExperts + 1)).message,
              AllOf(HasSubstr("qwen3moe.expert_count"), allowed(limits::kMaxExperts)));
  EXPECT_THAT(refusal(qwen3_moe().set_u32("qwen3moe.expert_used_count", 9)).message,
              AllOf(HasSubstr("qwen3moe.expert_used_count"), allowed(8)));
  EXPECT_THAT(refusal(qwen3_moe()
                          .set_u32("qwen3moe.expert_count", 100)
                          .set_u32("qwen3moe.expert_used_count", limits::kMaxExpertsUsed + 1))
                  .message,
              allowed(limits::kMaxExpertsUsed));
}

TEST_F(MixtureFile, AWrongShapeNamesEveryKeyThatImpliesIt) {
  EXPECT_THAT(refusal(qwen3_moe().set_u32("qwen3moe.expert_feed_forward_length", 48)).message,
              AllOf(HasSubstr("[8, 32, 64], expected [8, 48, 64]"), HasSubstr("qwen3moe.expert_count"),
                    HasSubstr("qwen3moe.expert_feed_forward_length"), HasSubstr("qwen3moe.embedding_length")));
}

TEST_F(MixtureFile, TheSharedExpertsGateMayBeAVectorOrARow) {
  GgufVariant row(Oracle("qwen3_5-moe").gguf("BF16")), flat(Oracle("qwen3_5-moe").gguf("BF16"));
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = fmt::format("blk.{}.ffn_gate_inp_shexp.weight", layer);
    ASSERT_EQ(row.tensor(name).shape, matrix(1, 64));
    flat.set_floats(name, vector(64), row.floats(name));
  }
  const std::vector<std::int32_t> tokens{5, 6, 7};
  const auto expected = row.load(), found = flat.load();
  ASSERT_TRUE(expected.has_value()) << expected.error().message;
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(ops::ref::Interpreter(expected->plan()).run(tokens, 1).values,
            ops::ref::Interpreter(found->plan()).run(tokens, 1).values);
}

TEST_F(MixtureFile, ExpertBiasesInHalfFloatsAreWidened) {
  const std::vector<std::int32_t> tokens{5, 6, 7};
  GgufVariant as_is = gpt_oss(), halves = gpt_oss();
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = fmt::format("blk.{}.ffn_down_exps.bias", layer);
    std::vector<float> values = as_is.floats(name);
    std::vector<std::byte> bytes(values.size() * 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half = f32_to_f16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
      values[i] = f16_to_f32(half);
    }
    const tensor::Shape shape = as_is.tensor(name).shape;
    as_is.set_floats(name, shape, values);
    halves.set_tensor(name, tensor::DType::f16, shape, std::move(bytes));
  }
  const auto expected = as_is.load(), found = halves.load();
  ASSERT_TRUE(expected.has_value() && found.has_value());
  EXPECT_EQ(ops::ref::Interpreter(expected->plan()).run(tokens, 1).values,
            ops::ref::Interpreter(found->plan()).run(tokens, 1).values);
}

}  // namespace
}  // namespace adze::test
