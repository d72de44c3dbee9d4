// What a Gemma 4 file says about its layers: what must be there, and what a rope setting of the caller may change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden/oracle.hpp"

namespace adze::test {
namespace {

using ::testing::HasSubstr;

class Gemma4File : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = missing_oracle({"gemma4-e2b", "BF16"});
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  static GgufVariant file() { return GgufVariant(Oracle("gemma4-e2b").gguf("BF16")); }
};

TEST_F(Gemma4File, WhatALayerStoresMustBeThere) {
  for (const char* name : {"blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_k_norm.weight",
                           "blk.7.layer_output_scale.weight", "rope_freqs.weight"}) {
    const auto model = file().remove_tensor(name).load();
    ASSERT_FALSE(model.has_value()) << name;
    EXPECT_EQ(model.error().code, ErrorCode::corrupt_file) << name;
    EXPECT_THAT(model.error().message, HasSubstr(name));
  }
  // Of the last five layers, which store nothing, the first would have to.
  const auto fewer = file().set_u32("gemma4.attention.shared_kv_layers", 4).load();
  ASSERT_FALSE(fewer.has_value());
  EXPECT_THAT(fewer.error().message, HasSubstr("blk.5.attn_k.weight"));
}

TEST_F(Gemma4File, OddRotationsAreRefused) {
  const auto model = file().set_u32("gemma4.rope.dimension_count_swa", 31).load();
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, HasSubstr("rope.dimension_count_swa is 31"));
}

// rope_freqs says which pairs of a full layer stand still; it is no scaling that another one replaces.
TEST_F(Gemma4File, ARopeScalingLeavesThePairsThatStandStill) {
  GgufVariant plain = file(), none = file();
  const auto expected = plain.load();
  model::ModelOptions options;
  options.rope.scaling = "none";
  const auto model = none.load(options);
  ASSERT_TRUE(expected.has_value() && model.has_value());
  ASSERT_EQ(model->plan().ropes.size(), expected->plan().ropes.size());
  for (std::size_t i = 0; i < model->plan().ropes.size(); ++i) {
    EXPECT_EQ(model->plan().ropes[i].inverse_frequency, expected->plan().ropes[i].inverse_frequency);
  }
}

}  // namespace
}  // namespace adze::test
