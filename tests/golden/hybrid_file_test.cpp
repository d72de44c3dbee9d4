// What a file says about recurrent layers: which they are, their sizes, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "golden/folder_of_gguf.hpp"
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
  const model::Weights& predictors = model->predictors();
  ASSERT_NE(predictors.get("blk.*.nextn.eh_proj.weight", 0), nullptr);
  EXPECT_EQ(predictors.get("blk.*.nextn.eh_proj.weight", 0), model->weights().find("blk.8.nextn.eh_proj.weight"));
  EXPECT_EQ(predictors.get("blk.*.attn_q.weight", 0), model->weights().find("blk.8.attn_q.weight"));
  EXPECT_EQ(predictors.get("blk.*.attn_norm.weight", 0), model->weights().find("blk.8.attn_norm.weight"));
  EXPECT_EQ(predictors.get("blk.*.ssm_out.weight", 0), nullptr);
  EXPECT_EQ(predictors.get("blk.*.nextn.embed_tokens.weight", 0), nullptr);
  EXPECT_EQ(predictors.all().size(), 15u);
  EXPECT_TRUE(model->weights().unused().empty());
  ASSERT_EQ(model->notes().size(), 1u);
  EXPECT_NE(model->notes().front().find("predict further tokens (15 tensors, "), std::string::npos);
  GgufVariant small(base), none(base), all(base);
  small.set_floats("blk.8.nextn.eh_proj.weight", matrix(64, 64), std::vector<float>(64 * 64));
  EXPECT_EQ(refusal(small, "'blk.8.nextn.eh_proj.weight' has the shape [64, 64], expected [64, 128]"),
            ErrorCode::corrupt_file);
  none.remove_tensor("blk.8.nextn.eh_proj.weight");
  EXPECT_EQ(refusal(none, "block 8 is none that predicts further tokens"), ErrorCode::corrupt_file);
  all.set_u32("qwen35.nextn_predict_layers", 9);
  EXPECT_EQ(refusal(all, "qwen35.nextn_predict_layers"), ErrorCode::corrupt_file);
}

// In a folder the block stands beside the decoder, by names of its own.
TEST_F(HybridFile, AFolderMayHaveTheBlockToo) {
  const Oracle oracle("qwen3_5-dense");
  const auto gguf = model::Model::load(base);
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  std::vector<FolderTensor> tensors = read_tensors(oracle.hugging_face("HF_VLM") / "model.safetensors");
  for (const FolderTensor& tensor : folder_tensors(*gguf)) {  // layer 7 attends; its tensors will do
    if (!tensor.name.starts_with("model.layers.7.")) continue;
    tensors.push_back(tensor);
    tensors.back().name = "mtp.layers.0." + tensor.name.substr(15);
  }
  tensors.push_back({"mtp.fc.weight", "BF16", {64, 128}, std::vector<std::byte>(64 * 128 * 2)});
  for (const char* name : {"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight"}) {
    tensors.push_back({name, "BF16", {64}, std::vector<std::byte>(128)});
  }
  const ModelFolder folder("adze_predictors");
  std::filesystem::copy_file(oracle.hugging_face("HF_VLM") / "config.json", folder.path() / "config.json");
  folder.write_weights("model.safetensors", tensors);
  const auto model = model::Model::load(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto plain = model::Model::load(oracle.hugging_face("HF_VLM"));
  EXPECT_EQ(logits(*model), logits(*plain));
  EXPECT_EQ(model->parameter_count(), plain->parameter_count());
  EXPECT_TRUE(plain->predictors().all().empty());
  EXPECT_EQ(model->predictors().all().size(), 15u);
  EXPECT_EQ(model->predictors().get("blk.*.nextn.eh_proj.weight", 0), model->weights().find("mtp.fc.weight"));
  EXPECT_EQ(model->predictors().get("blk.*.attn_k.weight", 0),
            model->weights().find("mtp.layers.0.self_attn.k_proj.weight"));
  EXPECT_TRUE(model->weights().unused().empty());
  std::ranges::find(tensors, "mtp.norm.weight", &FolderTensor::name)->shape = {32, 2};
  folder.write_weights("model.safetensors", tensors);
  const auto refused = model::Model::load(folder.path());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("'mtp.norm.weight' has the shape [32, 2], expected [64]"), std::string::npos)
      << refused.error().message;
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
