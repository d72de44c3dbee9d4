#include "model/hyperparameters.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"
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

}  // namespace
}  // namespace adze::model
