// What long-context models say beyond the common keys: queries that grow with their position, and rope factors that are
// chosen by the context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

using ::testing::HasSubstr;

ops::ref::Rows logits(GgufVariant& variant, const std::vector<std::int32_t>& tokens) {
  auto model = variant.load();
  if (!model) throw std::runtime_error(model.error().message);
  return ops::ref::Interpreter(model->plan()).run(tokens, static_cast<int>(tokens.size()));
}

GgufVariant ministral3() { return GgufVariant(Oracle("ministral3").gguf("BF16")); }

TEST(Ministral3File, QueriesGrowFromTheOriginalContextOn) {
  std::vector<std::int32_t> tokens = Oracle("ministral3").prompt("p600");
  tokens.resize(130);  // the original context is 128
  GgufVariant with = ministral3(), without = ministral3();
  without.remove_key("mistral3.attention.temperature_scale");
  const ops::ref::Rows grown = logits(with, tokens), plain = logits(without, tokens);
  EXPECT_TRUE(std::ranges::equal(grown[127], plain[127]));
  EXPECT_GT(rel_rms(grown[128], plain[128]), 1e-3);
}

TEST(Ministral3File, TheMagnitudeIsAQuotientOfTwo) {
  const auto magnitude = [](GgufVariant variant) { return variant.load().value().plan().ropes.front().magnitude; };
  EXPECT_FLOAT_EQ(magnitude(ministral3()), 1.0f);
  const float alone = magnitude(std::move(ministral3().remove_key("mistral3.rope.scaling.yarn_log_multiplier")));
  EXPECT_FLOAT_EQ(alone, static_cast<float>(0.1 * std::log(4.0) + 1.0));
  EXPECT_FLOAT_EQ(magnitude(std::move(ministral3().set_f32("mistral3.rope.scaling.yarn_log_multiplier", 2.0f))),
                  alone / static_cast<float>(0.2 * std::log(4.0) + 1.0));
}

TEST(Ministral3File, ASenselessScaleIsRefused) {
  GgufVariant variant = ministral3();
  const auto model = variant.set_f32("mistral3.attention.temperature_scale", -1.0f).load();
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, HasSubstr("mistral3.attention.temperature_scale is -1"));
}

constexpr std::int64_t kOriginal = 64;
constexpr const char* kShort = "rope_factors_short.weight";
constexpr const char* kLong = "rope_factors_long.weight";

GgufVariant phi3() { return GgufVariant(Oracle("phi3-longrope").gguf("BF16")); }

Result<model::Model> load(GgufVariant& variant, std::int64_t context, const model::RopeOverrides& rope = {}) {
  model::ModelOptions options;
  options.context = context;
  options.rope = rope;
  return variant.load(options);
}

TEST(LongRope, TheContextChoosesTheFactors) {
  GgufVariant variant = phi3();
  for (const std::int64_t context : {std::int64_t{0}, kOriginal + 1, kOriginal, std::int64_t{1}}) {
    const bool beyond = context == 0 || context > kOriginal;  // 0: the 2048 positions of the model
    const auto model = load(variant, context);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    const std::vector<float> factors = variant.floats(beyond ? kLong : kShort);
    const ops::RopeSpec& rope = model->plan().ropes.front();
    ASSERT_EQ(rope.inverse_frequency.size(), 6u);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const double plain = std::pow(10000.0, -static_cast<double>(i) / 6.0);
      EXPECT_FLOAT_EQ(rope.inverse_frequency[i], static_cast<float>(plain / static_cast<double>(factors[i])));
    }
    EXPECT_FLOAT_EQ(rope.magnitude, static_cast<float>(std::sqrt(1.0 + std::log(2048.0 / 64.0) / std::log(64.0))));
    ASSERT_EQ(model->notes().size(), beyond ? 1u : 0u);
    for (const std::string& note : model->notes()) EXPECT_THAT(note, HasSubstr("contexts beyond 64"));
  }
}

TEST(LongRope, BothSetsMustBeThere) {
  for (const char* missing : {kShort, kLong}) {
    GgufVariant variant = phi3();
    const auto model = variant.remove_tensor(missing).load();
    ASSERT_FALSE(model.has_value());
    EXPECT_THAT(model.error().message, HasSubstr(missing));
  }
  GgufVariant named = phi3();
  const auto model =
      named.remove_tensor(kShort).remove_tensor(kLong).set_string("phi3.rope.scaling.type", "longrope").load();
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, HasSubstr("longrope"));
}

TEST(LongRope, AnotherScalingReplacesItWhole) {
  GgufVariant variant = phi3();
  const auto none = load(variant, 0, {.scaling = "none"});
  ASSERT_TRUE(none.has_value()) << none.error().message;
  EXPECT_EQ(none->plan().ropes.front().inverse_frequency,
            model::make_rope({.dims = 12, .base = 10000.0}).inverse_frequency);
  EXPECT_EQ(none->plan().ropes.front().magnitude, 1.0f);
  EXPECT_TRUE(none->notes().empty());
  const auto factor = load(variant, 0, {.factor = 4.0});
  ASSERT_FALSE(factor.has_value());
  EXPECT_EQ(factor.error().code, ErrorCode::invalid_argument);
}

TEST(LongRope, AFolderMustHaveBothSetsInTheRightSize) {
  const std::filesystem::path original = Oracle("phi3-longrope").hugging_face();
  std::ifstream file(original / "config.json");
  const std::string config((std::istreambuf_iterator<char>(file)), {});
  const ModelFolder folder("adze_long_rope");
  std::filesystem::copy_file(original / "model.safetensors", folder.path() / "model.safetensors");
  const auto refusal = [&](std::string_view old, std::string_view by) {
    std::string changed = config;
    changed.replace(changed.find(old), old.size(), by);
    folder.write("config.json", changed);
    const auto model = model::Model::load(folder.path());
    return model ? std::string() : model.error().message;
  };
  EXPECT_EQ(refusal("\"longrope\"", "\"su\""), "");
  EXPECT_THAT(refusal("\"short_factor\"", "\"attention_factor\": 1.0, \"no\""), HasSubstr("no"));
  EXPECT_THAT(refusal("1.05,", ""), HasSubstr("is 5 factors, allowed is one for each of 6 pairs"));
  EXPECT_THAT(refusal("1.05", "0"), HasSubstr("is 0, allowed is more than 0"));
  EXPECT_THAT(refusal("1.05", "\"1\""), HasSubstr("short_factor"));
}

}  // namespace
}  // namespace adze::test
