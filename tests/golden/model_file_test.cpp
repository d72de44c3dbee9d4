// What Model::load accepts and refuses, over oracle files with one thing changed: the message must name the key or the
// tensor, what was found, and what would be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/limits.hpp"
#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::filesystem::path data(const char* name) { return std::filesystem::path(ADZE_TEST_DATA) / name; }

GgufVariant grouped_heads() { return GgufVariant(data("oracles/llama-gqa-rope3/llama-gqa-rope3-BF16.gguf")); }
GgufVariant tied() { return GgufVariant(data("oracles/llama-tied-mqa-hd24/llama-tied-mqa-hd24-Q8_0.gguf")); }

std::vector<float> logits(const model::Model& model, std::initializer_list<std::int32_t> tokens = {5, 6, 7, 300, 8}) {
  ops::ref::Interpreter interpreter(model.plan());
  return interpreter.run(std::vector<std::int32_t>(tokens), 1).values;
}

// `variant` is a GgufVariant, named or not: its setters return it by reference.
template <class Variant>
std::vector<float> loaded_logits(Variant&& variant, const model::ModelOptions& options = {}) {
  auto model = variant.load(options);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model ? logits(*model) : std::vector<float>{};
}

template <class Variant>
Error refusal(Variant&& variant, const model::ModelOptions& options = {}) {
  auto model = variant.load(options);
  EXPECT_FALSE(model.has_value()) << "loaded";
  return model ? Error{} : model.error();
}

TEST(ModelFile, SaysWhatItIs) {
  GgufVariant variant = grouped_heads();
  const auto model = variant.load();
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->name(), "llama-gqa-rope3-F32");
  EXPECT_EQ(model->family().name, "llama");
  EXPECT_EQ(model->plan().family, "llama");
  const model::Hyperparameters& p = model->hyperparameters();
  EXPECT_EQ(p.layer_count(), 5);
  EXPECT_EQ(p.hidden_size, 64);
  EXPECT_EQ(p.vocabulary_size, 1280);
  EXPECT_EQ(p.layers[4].heads, 4);
  EXPECT_EQ(p.layers[4].kv_heads, 2);
  EXPECT_EQ(p.layers[4].head_size, 16);
  EXPECT_EQ(p.layers[4].feed_forward, 160);
  EXPECT_EQ(model->plan().context_length, 2048);
  EXPECT_EQ(model->plan().steps.size(), 1 + 5 * 8 + 1u);
  EXPECT_EQ(model->plan().kv_layers.size(), 5u);
  EXPECT_EQ(model->parameter_count(), 379584 + 8);  // and the rope factors
  EXPECT_TRUE(model->notes().empty());
  EXPECT_FALSE(model->chat_template().has_value());
}

// --- the file is none of ours ----------------------------------------------------------------------------------------

TEST(ModelFile, AnUnknownArchitectureIsNamedAndTheFileIsNotBlamed) {
  const auto model = model::Model::load(data("badfiles/L19_unknown_arch.gguf"));
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::unsupported_architecture);
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("zz-never-heard-of"), HasSubstr("readable")));
  EXPECT_THAT(model.error().hint, HasSubstr("llama"));
}

TEST(ModelFile, AnArchitectureThatIsNoStringIsCorrupt) {
  const auto model = model::Model::load(data("badfiles/L20_arch_not_string.gguf"));
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(model.error().message, HasSubstr("general.architecture"));
}

TEST(ModelFile, NoArchitectureAtAllIsCorrupt) {
  const Error error = refusal(grouped_heads().remove_key("general.architecture"));
  EXPECT_EQ(error.code, ErrorCode::corrupt_file);
  EXPECT_THAT(error.message, HasSubstr("general.architecture"));
}

TEST(ModelFile, AnAdapterIsRefusedByName) {
  const Error error = refusal(grouped_heads().set_string("general.type", "adapter"));
  EXPECT_EQ(error.code, ErrorCode::unsupported_feature);
  EXPECT_THAT(error.message, HasSubstr("LoRA"));
}

TEST(ModelFile, AVocabularyWithoutWeightsIsNoModel) {
  GgufVariant variant = grouped_heads();
  auto model = variant.load();
  ASSERT_TRUE(model.has_value());
  std::vector<std::string> names;
  for (const auto& tensor : model->weights().tensors()) names.emplace_back(tensor.name);
  GgufVariant bare = grouped_heads();
  for (const std::string& name : names) bare.remove_tensor(name);
  EXPECT_EQ(refusal(std::move(bare)).code, ErrorCode::not_a_model);
}

TEST(ModelFile, ExplainTellsFamilyAndReason) {
  auto store = format::WeightStore::open(data("badfiles/L19_unknown_arch.gguf"));
  ASSERT_TRUE(store.has_value());
  const model::Explanation unknown = model::explain({.store = std::move(*store)});
  EXPECT_EQ(unknown.architecture, "zz-never-heard-of");
  EXPECT_EQ(unknown.family, "");
  ASSERT_TRUE(unknown.refusal.has_value());
  EXPECT_EQ(unknown.refusal->code, ErrorCode::unsupported_architecture);

  store = format::WeightStore::open(data("oracles/llama-k256/llama-k256-Q6_K.gguf"));
  ASSERT_TRUE(store.has_value());
  const model::Explanation known = model::explain({.store = std::move(*store)});
  EXPECT_EQ(known.family, "llama");
  EXPECT_FALSE(known.refusal.has_value());
  ASSERT_TRUE(known.parameters.has_value());
  EXPECT_EQ(known.parameters->layer_count(), 3);
}

// --- metadata --------------------------------------------------------------------------------------------------------

struct BadKey {
  const char* key;
  std::int64_t value;  // -1: the key is left out
  const char* expected;
};

class BadNumber : public testing::TestWithParam<BadKey> {};

TEST_P(BadNumber, IsRefusedByKeyFoundAndAllowed) {
  const auto& [key, value, expected] = GetParam();
  GgufVariant variant = grouped_heads();
  value < 0 ? variant.remove_key(key) : variant.set_u32(key, static_cast<std::uint32_t>(value));
  const Error error = refusal(std::move(variant));
  EXPECT_EQ(error.code, ErrorCode::corrupt_file);
  EXPECT_THAT(error.message, AllOf(HasSubstr(key), HasSubstr(expected)));
  EXPECT_THAT(error.message, HasSubstr(value < 0 ? "" : std::to_string(value)));
}

INSTANTIATE_TEST_SUITE_P(
    Llama, BadNumber,
    testing::Values(
        BadKey{"llama.block_count", 0, "1 to 1024"}, BadKey{"llama.block_count", 1025, "1 to 1024"},
        BadKey{"llama.block_count", -1, "missing"}, BadKey{"llama.embedding_length", 131073, "1 to 131072"},
        BadKey{"llama.embedding_length", -1, "missing"}, BadKey{"llama.context_length", 0, "1 to 16777216"},
        BadKey{"llama.context_length", 16777217, "1 to 16777216"},
        BadKey{"llama.attention.head_count", 1025, "1 to 1024"}, BadKey{"llama.attention.head_count", -1, "missing"},
        BadKey{"llama.attention.head_count_kv", 0, "1 to 1024"},
        BadKey{"llama.attention.head_count_kv", 3, "no multiple"},
        BadKey{"llama.attention.key_length", 1025, "1 to 1024"},
        BadKey{"llama.feed_forward_length", 1048577, "1 to 1048576"},
        BadKey{"llama.feed_forward_length", -1, "missing"}, BadKey{"llama.vocab_size", 4194305, "1 to 4194304"},
        BadKey{"llama.vocab_size", 1000, "1280 tokens"}, BadKey{"llama.rope.dimension_count", 18, "2 to 16"},
        BadKey{"llama.rope.dimension_count", 7, "even"}, BadKey{"llama.rope.freq_base", 1, "more than 1"},
        BadKey{"llama.rope.scaling.factor", 0, "more than 0"},
        BadKey{"llama.rope.scaling.original_context_length", 0, "1 to 16777216"},
        BadKey{"llama.attention.layer_norm_rms_epsilon", -1, "missing"},
        BadKey{"llama.attention.layer_norm_rms_epsilon", 2, "at most 1"},
        BadKey{"general.sampling.top_p", 2, "0 to 1"}));

TEST(ModelFile, ANumberOfAnotherKindIsRefused) {
  const Error error = refusal(grouped_heads().set_string("llama.block_count", "five"));
  EXPECT_EQ(error.code, ErrorCode::corrupt_file);
  EXPECT_THAT(error.message, HasSubstr("llama.block_count"));
  for (const float base : {std::nanf(""), std::numeric_limits<float>::infinity(), 2e12f}) {
    EXPECT_EQ(refusal(grouped_heads().set_f32("llama.rope.freq_base", base)).code, ErrorCode::corrupt_file) << base;
  }
}

struct Unsupported {
  const char* key;
  const char* word;
};
class UnsupportedSetting : public testing::TestWithParam<Unsupported> {};

TEST_P(UnsupportedSetting, IsRefusedByName) {
  const Error error = refusal(grouped_heads().set_u32(GetParam().key, 3));
  EXPECT_EQ(error.code, ErrorCode::unsupported_feature);
  EXPECT_THAT(error.message, AllOf(HasSubstr(GetParam().key), HasSubstr(GetParam().word)));
}

INSTANTIATE_TEST_SUITE_P(Llama, UnsupportedSetting,
                         testing::Values(Unsupported{"llama.expert_count", "mixture of experts"},
                                         Unsupported{"llama.attention.value_length", "values"},
                                         Unsupported{"llama.attention.sliding_window_pattern", "some layers"},
                                         Unsupported{"llama.attention.clamp_kqv", "clamped"},
                                         Unsupported{"llama.attention.max_alibi_bias", "ALiBi"},
                                         Unsupported{"llama.final_logit_softcapping", "soft-capped"},
                                         Unsupported{"llama.logit_scale", "scaled logits"},
                                         Unsupported{"llama.residual_scale", "scaled residuals"},
                                         Unsupported{"llama.embedding_scale", "scaled embeddings"}));

TEST(ModelFile, NeutralValuesOfUnsupportedSettingsAreFine) {
  EXPECT_EQ(loaded_logits(grouped_heads()), loaded_logits(grouped_heads()
                                                              .set_u32("llama.expert_count", 0)
                                                              .set_bool("llama.attention.causal", true)
                                                              .set_bool("llama.use_parallel_residual", false)
                                                              .set_f32("llama.logit_scale", 1.0f)));
}

TEST(ModelFile, AnUnknownRopeScalingIsRefusedByName) {
  const Error error = refusal(grouped_heads().set_string("llama.rope.scaling.type", "dynamic"));
  EXPECT_EQ(error.code, ErrorCode::unsupported_feature);
  EXPECT_THAT(error.message, AllOf(HasSubstr("llama.rope.scaling.type"), HasSubstr("dynamic")));
}

TEST(ModelFile, SizesMayBeGivenPerLayer) {
  EXPECT_EQ(loaded_logits(grouped_heads()),
            loaded_logits(grouped_heads()
                              .set_u32s("llama.attention.head_count", {4, 4, 4, 4, 4})
                              .set_u32s("llama.attention.head_count_kv", {2, 2, 2, 2, 2})
                              .set_u32s("llama.feed_forward_length", {160, 160, 160, 160, 160})));
  const Error error = refusal(grouped_heads().set_u32s("llama.feed_forward_length", {160, 160}));
  EXPECT_EQ(error.code, ErrorCode::corrupt_file);
  EXPECT_THAT(error.message, HasSubstr("llama.feed_forward_length"));
}

TEST(ModelFile, HeadSizeIsDerivedWhereItIsNotGiven) {
  EXPECT_EQ(loaded_logits(grouped_heads()), loaded_logits(grouped_heads()
                                                              .remove_key("llama.attention.key_length")
                                                              .remove_key("llama.attention.value_length")
                                                              .remove_key("llama.rope.dimension_count")
                                                              .remove_key("llama.vocab_size")));
}

TEST(ModelFile, SamplingAdviceIsRead) {
  GgufVariant variant = grouped_heads();
  const auto model = variant.set_f32("general.sampling.temp", 0.6f)
                         .set_u32("general.sampling.top_k", 20)
                         .set_u32("general.sampling.mirostat", 2)
                         .load();
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->generation_defaults().temperature, 0.6f);
  EXPECT_EQ(model->generation_defaults().top_k, 20);
  EXPECT_FALSE(model->generation_defaults().top_p.has_value());
  ASSERT_EQ(model->notes().size(), 1u);
  EXPECT_THAT(model->notes()[0], HasSubstr("general.sampling.mirostat"));
}

TEST(ModelFile, ASlidingWindowIsHonoured) {
  GgufVariant variant = grouped_heads();
  const auto model = variant.set_u32("llama.attention.sliding_window", 3).load();
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->plan().kv_layers[2].window, 3);
  GgufVariant full = grouped_heads();
  EXPECT_EQ(logits(*model, {5, 6, 7}), logits(*full.load(), {5, 6, 7}));
  EXPECT_NE(logits(*model), logits(*full.load()));
}

// --- tensors ---------------------------------------------------------------------------------------------------------

TEST(ModelFile, AMissingOutputIsTheTiedEmbedding) {
  GgufVariant variant = tied();
  const tensor::TensorView& table = variant.tensor("token_embd.weight");
  variant.set_tensor("output.weight", table.type, table.shape, {table.bytes.begin(), table.bytes.end()});
  EXPECT_EQ(loaded_logits(std::move(variant)), loaded_logits(tied()));
}

TEST(ModelFile, TensorsOfOtherPartsAreLeftAlone) {
  GgufVariant variant = tied();
  const std::vector<float> some(32);
  for (int i = 0; i < 20; ++i) {
    variant.set_floats("v.blk." + std::to_string(i) + ".attn_q.weight", vector(32), some);
    variant.set_floats("mm." + std::to_string(i) + ".weight", vector(32), some);
  }
  const auto model = variant.load();
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->notes(), std::vector<std::string>{"40 tensors not used"});
  EXPECT_EQ(logits(*model), loaded_logits(tied()));
}

TEST(ModelFile, AWeightThatTheFamilyDoesNotKnowIsRefused) {
  const std::vector<float> some(24);
  // A layer behind the last one is a model cut short, unless the file says that it predicts further tokens.
  for (const char* name : {"blk.2.attn_q_norm.weight", "output.bias", "blk.4.nextn.eh_proj.weight"}) {
    const Error error = refusal(tied().set_floats(name, vector(24), some));
    EXPECT_EQ(error.code, ErrorCode::unsupported_feature);
    EXPECT_THAT(error.message, HasSubstr(name));
  }
  EXPECT_EQ(refusal(tied().set_u32("llama.block_count", 2)).code, ErrorCode::unsupported_feature);
}

TEST(ModelFile, AWrongShapeNamesTensorShapesAndKeys) {
  const std::vector<float> values(64 * 31);
  const Error error = refusal(grouped_heads().set_floats("blk.3.attn_k.weight", matrix(31, 64), values));
  EXPECT_EQ(error.code, ErrorCode::corrupt_file);
  EXPECT_THAT(error.message, AllOf(HasSubstr("blk.3.attn_k.weight"), HasSubstr("[31, 64]"), HasSubstr("[32, 64]"),
                                   HasSubstr("llama.attention.head_count_kv"), HasSubstr("llama.attention.key_length"),
                                   HasSubstr("llama.embedding_length")));
}

TEST(ModelFile, AMissingTensorIsNamed) {
  EXPECT_THAT(refusal(grouped_heads().remove_tensor("blk.1.ffn_up.weight")).message, HasSubstr("blk.1.ffn_up.weight"));
  EXPECT_THAT(refusal(grouped_heads().remove_tensor("output_norm.weight")).message, HasSubstr("output_norm.weight"));
}

TEST(ModelFile, ABadRopeFactorIsRefused) {
  std::vector<float> factors(8, 1.0f);
  factors[3] = 0.0f;
  const Error error = refusal(grouped_heads().set_floats("rope_freqs.weight", vector(8), factors));
  EXPECT_EQ(error.code, ErrorCode::corrupt_file);
  EXPECT_THAT(error.message, HasSubstr("rope_freqs.weight"));
}

TEST(ModelFile, VectorsInHalfFloatsAreWidened) {
  GgufVariant variant = grouped_heads();
  const std::vector<float> norm = variant.floats("output_norm.weight");
  std::vector<std::byte> half(norm.size() * 2);
  tensor::quantise_row(tensor::DType::bf16, norm.data(), half.data(), static_cast<std::int64_t>(norm.size()));
  variant.set_tensor("output_norm.weight", tensor::DType::bf16, vector(64), half);
  EXPECT_EQ(loaded_logits(std::move(variant)), loaded_logits(grouped_heads()));
}

TEST(ModelFile, ANormInBlocksAndAWeightInIntegersAreRefused) {
  Error error = refusal(
      tied().set_tensor("output_norm.weight", tensor::DType::q8_0, vector(96), std::vector<std::byte>(96 / 32 * 34)));
  EXPECT_EQ(error.code, ErrorCode::unsupported_type);
  EXPECT_THAT(error.message, AllOf(HasSubstr("output_norm.weight"), HasSubstr("Q8_0")));
  error = refusal(tied().set_tensor("blk.0.attn_output.weight", tensor::DType::i8, matrix(96, 96),
                                    std::vector<std::byte>(96 * 96)));
  EXPECT_EQ(error.code, ErrorCode::unsupported_type);
  EXPECT_THAT(error.message, HasSubstr("blk.0.attn_output.weight"));
}

// Attention weights sum to one, so a bias on the values is a bias of W_o times it on the output.
TEST(ModelFile, BiasesAreAdded) {
  GgufVariant on_values = tied(), on_output = tied();
  std::vector<float> bias(24), repeated(96), moved(96);
  for (std::size_t i = 0; i < 96; ++i) repeated[i] = bias[i % 24] = 0.01f * static_cast<float>(i % 24) - 0.1f;
  const std::vector<float> output = on_values.floats("blk.1.attn_output.weight");
  for (std::size_t row = 0; row < 96; ++row) {
    for (std::size_t i = 0; i < 96; ++i) moved[row] += output[row * 96 + i] * repeated[i];
  }
  on_values.set_floats("blk.1.attn_v.bias", vector(24), bias);
  on_output.set_floats("blk.1.attn_output.bias", vector(96), moved);
  const std::vector<float> expected = loaded_logits(on_output);
  EXPECT_LT(rel_rms(loaded_logits(on_values), expected), 1e-5);
  EXPECT_GT(rel_rms(loaded_logits(tied()), expected), 1e-3);
}

// --- rope overrides --------------------------------------------------------------------------------------------------

TEST(ModelFile, RopeOverridesReplaceWhatTheFileSays) {
  const std::vector<float> own = loaded_logits(grouped_heads());
  // Llama 3's scaling by name gives the factors that its converter stored.
  model::ModelOptions options;
  options.rope = {.scaling = "llama3", .factor = 8.0, .original_context = 256};
  EXPECT_LT(rel_rms(loaded_logits(grouped_heads(), options), own), 1e-5);
  // Without a scaling the stored factors are gone as well.
  options.rope = {.scaling = "none"};
  EXPECT_EQ(loaded_logits(grouped_heads(), options), loaded_logits(grouped_heads().remove_tensor("rope_freqs.weight")));
  options.rope = {.frequency_base = 20000.0};
  EXPECT_EQ(loaded_logits(grouped_heads(), options),
            loaded_logits(grouped_heads().set_f32("llama.rope.freq_base", 20000.0f)));
}

TEST(ModelFile, AStretchedRopeStretchesTheContext) {
  model::ModelOptions options;
  options.rope = {.scaling = "yarn", .factor = 4.0};
  GgufVariant variant = grouped_heads();
  EXPECT_EQ(variant.load(options)->plan().context_length, 8192);
  options = {.context = 5000};
  const auto model = variant.load(options);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->plan().context_length, 5000);
  ASSERT_EQ(model->notes().size(), 1u);
  EXPECT_THAT(model->notes()[0], AllOf(HasSubstr("5000"), HasSubstr("2048")));
  options.context = limits::kMaxContext + 1;
  EXPECT_EQ(variant.load(options).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace adze::test
