// Models of random weights: whole ones at small sizes, and the plans of real sizes.
#include "convert/synth.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "convert/shapes.hpp"
#include "format/gguf.hpp"
#include "model/model.hpp"
#include "model/vocabulary.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

using ::testing::HasSubstr;

const quantise::Mix* mix(std::string_view name) { return quantise::find_mix(name).value(); }

std::string write(const char* config, std::string_view type, std::uint64_t seed = 0) {
  const auto file = convert::plan_synthesis(config, "test", seed, {.mix = mix(type)});
  EXPECT_TRUE(file.has_value()) << (file ? "" : file.error().message);
  return file ? file->to_bytes() : std::string();
}

Result<model::Model> load(const std::string& bytes) {
  ADZE_TRY(format::GgufFile file,
           format::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "synthetic"));
  return model::Model::load(model::ModelSource{.store = format::WeightStore(std::move(file))});
}

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
  "tie_word_embeddings": false, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 256}})";

struct Config {
  const char* name;
  const char* text;
};
std::ostream& operator<<(std::ostream& out, const Config& config) { return out << config.name; }

class SynthFamily : public testing::TestWithParam<Config> {};

TEST_P(SynthFamily, RunsInEveryKindOfType) {
  for (const char* type : {"BF16", "Q4_K_M"}) {
    const std::string bytes = write(GetParam().text, type);
    const auto model = load(bytes);
    ASSERT_TRUE(model.has_value()) << type << ": " << model.error().message;
    const std::vector<std::int32_t> tokens{1, 300, 42};
    const auto logits = ops::ref::Interpreter(model->plan()).run(tokens, 1).values;
    double squares = 0;
    for (const float logit : logits) {
      ASSERT_TRUE(std::isfinite(logit)) << type;
      squares += static_cast<double>(logit) * static_cast<double>(logit);
    }
    const double deviation = std::sqrt(squares / static_cast<double>(logits.size()));
    EXPECT_GT(deviation, 0.1) << type;
    EXPECT_LT(deviation, 10.0) << type;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SynthFamily,
    testing::Values(
        Config{"llama", kLlama},
        Config{"qwen2", R"({"model_type": "qwen2", "hidden_size": 256, "intermediate_size": 512,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320})"},
        Config{"qwen3", R"({"model_type": "qwen3", "hidden_size": 256, "intermediate_size": 512, "head_dim": 64,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320})"},
        Config{"qwen3_moe", R"({"model_type": "qwen3_moe", "hidden_size": 256, "intermediate_size": 512,
          "head_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 320, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
          "norm_topk_prob": true})"},
        Config{"qwen3_5", R"({"model_type": "qwen3_5_text", "hidden_size": 256, "intermediate_size": 512,
          "head_dim": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 320, "tie_word_embeddings": true, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
          "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": 4,
          "linear_num_value_heads": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
          "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2]}})"},
        Config{"gemma2", R"({"model_type": "gemma2", "hidden_size": 256, "intermediate_size": 512, "head_dim": 64,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
          "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 64,
          "sliding_window": 64})"},
        Config{"gemma3", R"({"model_type": "gemma3_text", "hidden_size": 256, "intermediate_size": 512,
          "head_dim": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 320, "query_pre_attn_scalar": 64, "sliding_window": 64})"},
        Config{"gemma4", R"({"model_type": "gemma4_text", "hidden_size": 256, "intermediate_size": 512,
          "head_dim": 64, "global_head_dim": 128, "num_hidden_layers": 6, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 320, "hidden_size_per_layer_input": 32, "sliding_window": 64,
          "num_kv_shared_layers": 0, "final_logit_softcapping": 30.0, "rope_parameters": {
          "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
          "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})"},
        Config{"gpt_oss", R"({"model_type": "gpt_oss", "hidden_size": 256, "intermediate_size": 256,
          "head_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 320, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64,
          "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
          "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}})"},
        Config{"phi3", R"({"model_type": "phi3", "hidden_size": 256, "intermediate_size": 512,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320})"},
        Config{"olmo2", R"({"model_type": "olmo2", "hidden_size": 256, "intermediate_size": 512,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320})"},
        Config{"smollm3", R"({"model_type": "smollm3", "hidden_size": 256, "intermediate_size": 512,
          "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320})"}),
    [](const auto& test) { return test.param.name; });

TEST(Synth, EveryTypeCanBeWritten) {
  for (const quantise::Mix& every : quantise::mixes()) {
    const std::string bytes = write(kLlama, every.name);
    EXPECT_TRUE(load(bytes).has_value()) << every.name;
  }
}

TEST(Synth, TheSeedDecidesEveryByte) {
  const std::string first = write(kLlama, "Q4_K_M", 7);
  EXPECT_TRUE(first == write(kLlama, "Q4_K_M", 7));
  EXPECT_FALSE(first == write(kLlama, "Q4_K_M", 8));
}

TEST(Synth, TheVocabularyMergesLettersAndGivesTextBack) {
  const std::string bytes = write(kLlama, "Q8_0");
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "synthetic");
  ASSERT_TRUE(file.has_value());
  const auto tokenizer = model::load_tokenizer(file->metadata(), nullptr);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const std::string text = "the tea is on the table — 12 Ünits\n";
  const auto ids = (*tokenizer)->encode(text).value();
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ((*tokenizer)->decode(ids), text);
}

TEST(Synth, SizesOfPublishedModelsAreRight) {
  for (const convert::ModelShape& shape : convert::model_shapes()) {
    const auto file = convert::plan_synthesis(shape.config, shape.name, 0, {.mix = mix("Q4_K_M")});
    ASSERT_TRUE(file.has_value()) << shape.name << ": " << file.error().message;
    const double count = static_cast<double>(file->parameters().total()) / 1e9;
    EXPECT_NEAR(count, shape.parameters, 0.02 * shape.parameters) << shape.name;
  }
}

constexpr const char* kCohere2 = R"({{"model_type": "cohere2", "hidden_size": 64, "intermediate_size": 64,
  "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 320,
  "sliding_window": 16, "layer_types": [{}"full_attention"]}})";

// GGUF has no key for which layers of a Cohere2 slide, so there they are always the same.
TEST(Synth, RefusesLayersThatGgufCannotSay) {
  const auto plan = [](std::string_view first) {
    return convert::plan_synthesis(fmt::format(fmt::runtime(kCohere2), first), "test", 0, {});
  };
  constexpr std::string_view kSliding = R"("sliding_attention", )", kFull = R"("full_attention", )";
  EXPECT_TRUE(plan(fmt::format("{0}{0}{0}", kSliding)).has_value());
  const auto other = plan(fmt::format("{0}{1}{0}", kSliding, kFull));
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, ErrorCode::unsupported_feature);
  EXPECT_THAT(other.error().message, HasSubstr("cannot say what config.json says about the window of layer 1"));
  const auto fewer = plan(kSliding);
  ASSERT_FALSE(fewer.has_value());
  EXPECT_THAT(fewer.error().message, HasSubstr("the kinds of 2 layers where it has 4"));
}

TEST(Synth, RefusesAVocabularyWithoutRoomForBytes) {
  const auto file = convert::plan_synthesis(
      R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
          "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 100})",
      "test", 0, {.mix = mix("BF16")});
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(file.error().message, HasSubstr("a vocabulary of 100 tokens"));
}

}  // namespace
}  // namespace adze::test
