#include "model/rope.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace adze::model {
namespace {

using testing::HasSubstr;

TEST(Rope, UnscaledFrequenciesFallGeometrically) {
  const ops::RopeSpec rope = make_rope({.dims = 8, .base = 10000.0});
  ASSERT_EQ(rope.inverse_frequency.size(), 4u);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[0], 1.0f);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[1], 0.1f);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[2], 0.01f);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[3], 0.001f);
  EXPECT_EQ(rope.magnitude, 1.0f);
  EXPECT_FALSE(rope.interleaved);
}

TEST(Rope, LinearDividesAllFrequencies) {
  const ops::RopeSpec rope = make_rope({.dims = 4, .interleaved = true, .scaling = RopeScaling::linear, .factor = 4.0});
  EXPECT_FLOAT_EQ(rope.inverse_frequency[0], 0.25f);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[1], 0.0025f);
  EXPECT_TRUE(rope.interleaved);
}

TEST(Rope, FactorsDivideUnlessTheSettingsSayNo) {
  const std::array factors{2.0f, 1e30f};
  RopeSettings settings{.dims = 4};
  EXPECT_FLOAT_EQ(make_rope(settings, factors).inverse_frequency[0], 0.5f);
  EXPECT_NEAR(make_rope(settings, factors).inverse_frequency[1], 0.0f, 1e-30f);
  settings.use_factors = false;
  EXPECT_FLOAT_EQ(make_rope(settings, factors).inverse_frequency[0], 1.0f);
}

// Llama 3.1's published settings: short wavelengths stay, long ones are divided, a blend in between.
TEST(Rope, Llama3KeepsHighFrequenciesAndDividesLowOnes) {
  const RopeSettings plain{.dims = 128, .base = 500000.0};
  RopeSettings scaled = plain;
  scaled.scaling = RopeScaling::llama3;
  scaled.factor = 8.0;
  scaled.original_context = 8192;
  const std::vector<float> a = make_rope(plain).inverse_frequency, b = make_rope(scaled).inverse_frequency;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double wavelength = 2 * M_PI / static_cast<double>(a[i]);
    const double ratio = static_cast<double>(a[i]) / static_cast<double>(b[i]);
    if (wavelength < 8192 / 4.0) {
      EXPECT_NEAR(ratio, 1.0, 1e-6) << i;
    } else if (wavelength > 8192) {
      EXPECT_NEAR(ratio, 8.0, 1e-5) << i;
    } else {
      EXPECT_GT(ratio, 1.0) << i;
      EXPECT_LT(ratio, 8.0) << i;
    }
  }
}

// Ramp ends for base 10000, 8 dims, 4096 positions: pair 8 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 1.31, floor 1, and
// 8 ln(4096 / (2 pi)) / (2 ln 10000) = 2.81, ceil 3. So pairs 0 and 1 stay, pair 2 is halfway, pair 3 is divided by s.
TEST(Rope, YarnBlendsBetweenTheRampEnds) {
  const ops::RopeSpec rope =
      make_rope({.dims = 8, .scaling = RopeScaling::yarn, .factor = 4.0, .original_context = 4096});
  EXPECT_FLOAT_EQ(rope.inverse_frequency[0], 1.0f);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[1], 0.1f);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[2], 0.01f * (0.5f + 0.5f / 4.0f));
  EXPECT_FLOAT_EQ(rope.inverse_frequency[3], 0.001f / 4.0f);
  EXPECT_FLOAT_EQ(rope.magnitude, 0.1f * std::log(4.0f) + 1.0f);
}

TEST(Rope, TheAttentionFactorMultipliesTheMagnitude) {
  EXPECT_FLOAT_EQ(make_rope({.dims = 2, .attention_factor = 0.5}).magnitude, 0.5f);
}

TEST(RopeOverrides, UnsetFieldsKeepTheFileAndAFactorMeansLinear) {
  const RopeSettings file{.dims = 8, .base = 5e5, .original_context = 2048};
  const auto kept = apply_overrides(file, {});
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->base, 5e5);
  EXPECT_EQ(kept->scaling, RopeScaling::none);
  EXPECT_TRUE(kept->use_factors);
  const auto scaled = apply_overrides(file, {.factor = 4.0});
  ASSERT_TRUE(scaled.has_value());
  EXPECT_EQ(scaled->scaling, RopeScaling::linear);
  EXPECT_EQ(scaled->factor, 4.0);
  const auto yarn = apply_overrides(file, {.scaling = "yarn", .factor = 4.0});
  ASSERT_TRUE(yarn.has_value());
  EXPECT_EQ(yarn->scaling, RopeScaling::yarn);
  EXPECT_FALSE(yarn->use_factors);
  EXPECT_EQ(yarn->original_context, 2048);
}

TEST(RopeOverrides, NonsenseIsRefusedByName) {
  const RopeSettings file{.dims = 8};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto message = [&](const RopeOverrides& overrides) {
    const auto settings = apply_overrides(file, overrides);
    EXPECT_FALSE(settings.has_value());
    return settings ? std::string() : settings.error().message;
  };
  EXPECT_THAT(message({.scaling = "ntk"}), HasSubstr("'ntk'"));
  EXPECT_THAT(message({.frequency_base = 0.5}), HasSubstr("frequency base"));
  EXPECT_THAT(message({.frequency_base = nan}), HasSubstr("frequency base"));
  EXPECT_THAT(message({.factor = -1.0}), HasSubstr("scaling factor"));
  EXPECT_THAT(message({.original_context = 0}), HasSubstr("original context"));
  EXPECT_THAT(message({.scaling = "longrope"}), HasSubstr("'longrope'"));
}

TEST(RopeScalingName, GoesBothWays) {
  for (const RopeScaling scaling :
       {RopeScaling::none, RopeScaling::linear, RopeScaling::llama3, RopeScaling::yarn, RopeScaling::longrope}) {
    EXPECT_EQ(rope_scaling_from_name(rope_scaling_name(scaling)), scaling);
  }
  EXPECT_FALSE(rope_scaling_from_name("dynamic").has_value());
}

}  // namespace
}  // namespace adze::model
