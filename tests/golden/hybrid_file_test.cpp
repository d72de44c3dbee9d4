// What a file says about recurrent layers: which they are, their sizes, and what is refused.
#include <gtest/gtest.h>

#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

class HybridFile : public testing::Test {
 protected:
  void SetUp() override {
    if (oracle_folder("qwen3_5-dense").empty()) {
      GTEST_SKIP() << "set ADZE_TEST_ORACLES to the folder of all oracles for qwen3_5-dense";
    }
    base = Oracle("qwen3_5-dense").gguf("mtp-BF16");
  }
  static std::vector<float> logits(const model::Model& model) {
    const std::int32_t tokens[] = {3, 1, 4, 1, 5};
    return ops::ref::Interpreter(model.plan()).run(tokens, 1).values;
  }
  // The refusal of a file; its words must name `key`.
  static ErrorCode refusal(GgufVariant& variant, const std::string& key) {
    const auto model = variant.load();
    EXPECT_FALSE(model.has_value()) << key;
    if (model) return ErrorCode::io;
    EXPECT_NE(model.error().message.find(key), std::string::npos) << model.error().message;
    return model.error().code;
  }
  std::filesystem::path base;
};

TEST_F(HybridFile, LayersAreListedOrFollowTheInterval) {
  GgufVariant listed(base), counted(base), other(base);
  const auto expected = listed.load();
  ASSERT_TRUE(expected.has_value()) << expected.error().message;
  EXPECT_EQ(expected->plan().state_layers.size(), 6u);
  EXPECT_EQ(expected->plan().kv_layers.size(), 2u);
  const auto same = counted.remove_key("qwen35.attention.recurrent_layers").load();
  ASSERT_TRUE(same.has_value()) << same.error().message;
  EXPECT_EQ(logits(*same), logits(*expected));
  other.remove_key("qwen35.attention.recurrent_layers").set_u32("qwen35.full_attention_interval", 3);
  EXPECT_EQ(refusal(other, "blk.2."), ErrorCode::corrupt_file);  // no tensors for attention there
}

TEST_F(HybridFile, TheBlockThatPredictsFurtherTokensIsNoLayer) {
  GgufVariant variant(base);
  const auto model = variant.load();
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->hyperparameters().layer_count(), 8);
  GgufVariant all(base);
  all.set_u32("qwen35.nextn_predict_layers", 9);
  EXPECT_EQ(refusal(all, "qwen35.nextn_predict_layers"), ErrorCode::corrupt_file);
}

TEST_F(HybridFile, SizesAreChecked) {
  const auto with = [&](const std::string& key, std::uint32_t value) {
    GgufVariant variant(base);
    variant.set_u32("qwen35." + key, value);
    return refusal(variant, "qwen35." + key);
  };
  EXPECT_EQ(with("ssm.group_count", 3), ErrorCode::corrupt_file);   // does not divide the value heads
  EXPECT_EQ(with("ssm.inner_size", 130), ErrorCode::corrupt_file);  // is no multiple of them
  EXPECT_EQ(with("ssm.conv_kernel", 33), ErrorCode::corrupt_file);  // over the limit
  EXPECT_EQ(with("ssm.conv_kernel", 0), ErrorCode::corrupt_file);
  EXPECT_EQ(with("ssm.state_size", 64), ErrorCode::corrupt_file);  // the tensors are of 32
  EXPECT_EQ(with("ssm.time_step_rank", 0), ErrorCode::corrupt_file);
  EXPECT_EQ(with("expert_count", 4), ErrorCode::unsupported_feature);
  GgufVariant numbers(base);
  numbers.set_u32s("qwen35.attention.recurrent_layers", {1, 1, 0});
  EXPECT_EQ(refusal(numbers, "qwen35.attention.recurrent_layers"), ErrorCode::corrupt_file);
}

}  // namespace
}  // namespace adze::test
