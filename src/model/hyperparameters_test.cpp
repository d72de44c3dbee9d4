#include "model/hyperparameters.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"
#include "model/hyperparameter_fields.hpp"
#include "model/registry.hpp"

namespace adze::model {
namespace {

// The scale of a Gemma's scores by what its GGUF file says.
float gemma_scale(const std::string& architecture, int layers, int hidden, int heads, int head_size) {
  format::GgufWriter out;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  out.add_string("general.architecture", architecture);
  out.add_u32(key("block_count"), static_cast<std::uint32_t>(layers));
  out.add_u32(key("embedding_length"), static_cast<std::uint32_t>(hidden));
  out.add_u32(key("feed_forward_length"), 64);
  out.add_u32(key("attention.head_count"), static_cast<std::uint32_t>(heads));
  out.add_u32(key("attention.head_count_kv"), static_cast<std::uint32_t>(heads / 2));
  out.add_u32(key("attention.key_length"), static_cast<std::uint32_t>(head_size));
  out.add_u32(key("attention.value_length"), static_cast<std::uint32_t>(head_size));
  out.add_u32(key("attention.sliding_window"), 128);
  out.add_u32(key("context_length"), 8192);
  out.add_u32(key("vocab_size"), 1000);
  out.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-6f);
  const std::string bytes = out.to_bytes();
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(bytes)), "test").value();
  const auto p =
      find_family(architecture)->config(ConfigReader(file.metadata(), architecture, format::StoreFormat::gguf));
  if (!p) throw std::runtime_error(p.error().message);
  return p->attention_scale;
}

// Released sizes: query_pre_attn_scalar is the head size (0 here) but for the 27B, where it is hidden size / heads.
TEST(Hyperparameters, TheScaleOfGemmaThatGgufDoesNotCarry) {
  EXPECT_EQ(gemma_scale("gemma2", 26, 2304, 8, 256), 0.0f);
  EXPECT_EQ(gemma_scale("gemma2", 42, 3584, 16, 256), 0.0f);
  EXPECT_FLOAT_EQ(gemma_scale("gemma2", 46, 4608, 32, 128), 1.0f / std::sqrt(144.0f));
  EXPECT_EQ(gemma_scale("gemma3", 48, 3840, 16, 256), 0.0f);
  EXPECT_FLOAT_EQ(gemma_scale("gemma3", 62, 5376, 32, 128), 1.0f / std::sqrt(168.0f));
}

// What only a folder says counts for nothing in a GGUF file, and what GGUF does not define is refused.
TEST(Hyperparameters, LayersOfCohere2SlideAsTheFormatSays) {
  const auto read = [](const char* key, format::StoreFormat format) {
    format::GgufWriter out;
    out.add_string("general.architecture", "cohere2");
    for (const char* size : {"embedding_length", "feed_forward_length", "context_length", "vocab_size"})
      out.add_u32(std::string("cohere2.") + size, 64);
    out.add_u32("cohere2.block_count", 4);
    out.add_u32("cohere2.attention.head_count", 2);
    out.add_u32("cohere2.attention.sliding_window", 16);
    out.add_f32("cohere2.attention.layer_norm_epsilon", 1e-5f);
    out.add_f32("cohere2.logit_scale", 0.5f);
    out.add_bools(key, {false, true, true, true});
    const std::string bytes = out.to_bytes();
    const auto file = format::GgufFile::parse(std::as_bytes(std::span(bytes)), "test").value();
    return find_family("cohere2")->config(ConfigReader(file.metadata(), "cohere2", format));
  };
  const auto folder = read("cohere2.folder.sliding_layers", format::StoreFormat::safetensors);
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->layers.front().window, 0);
  EXPECT_EQ(folder->layers.back().window, 16);
  const auto gguf = read("cohere2.folder.sliding_layers", format::StoreFormat::gguf);
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ(gguf->layers.front().window, 16);
  EXPECT_EQ(gguf->layers.back().window, 0);
  const auto refused = read("cohere2.attention.sliding_window_pattern", format::StoreFormat::gguf);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_feature);
}

TEST(Hyperparameters, EverySettingIsAField) {
  const Hyperparameters plain;
  const auto differs = [&](auto change) {
    Hyperparameters other;
    change(other);
    return fields_of(other) != fields_of(plain);
  };
  EXPECT_TRUE(differs([](Hyperparameters& p) { p.activation = ops::Activation::gelu_erf; }));
  EXPECT_TRUE(differs([](Hyperparameters& p) { p.tied_output = false; }));
  EXPECT_TRUE(differs([](Hyperparameters& p) { p.attention_biases = true; }));
  EXPECT_TRUE(differs([](Hyperparameters& p) { p.feed_forward_biases = true; }));
  EXPECT_TRUE(differs([](Hyperparameters& p) { p.predictor.heads = 1; }));
  EXPECT_TRUE(differs([](Hyperparameters& p) { p.local_rope.base = 1.0; }));
  LayerParameters layer;
  layer.values = LayerParameters::Values::keys;
  EXPECT_NE(fields_of(layer), fields_of(LayerParameters{}));
}

}  // namespace
}  // namespace adze::model
