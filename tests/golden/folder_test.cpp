// Hugging Face folders: an oracle's GGUF written as safetensors, the way its converter's input was, must compute the
// same; and every way in which a folder can be wrong is refused by name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/limits.hpp"
#include "format/gguf.hpp"
#include "golden/folder_of_gguf.hpp"
#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "model/huggingface/vocabulary.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "hidden_act": "silu",
  "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "num_hidden_layers": 5, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
  "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 256, "rope_type": "llama3"},
  "tie_word_embeddings": false, "vocab_size": 1280})";

// One change of the configuration's text.
std::string config_with(std::string_view old, std::string_view by) {
  std::string config = kConfig;
  config.replace(config.find(old), old.size(), by);
  return config;
}

std::vector<FolderTensor> oracle_tensors() {
  return folder_tensors(model::Model::load(Oracle("llama-gqa-rope3").gguf("BF16")).value());
}

void rename_decoder(std::vector<FolderTensor>& tensors, std::string_view decoder, std::string_view head) {
  for (FolderTensor& tensor : tensors) {
    const bool in_decoder = tensor.name.starts_with("model.");
    tensor.name = in_decoder ? std::string(decoder) + tensor.name.substr(6) : std::string(head) + tensor.name;
  }
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    folder.write("config.json", kConfig);
    folder.write_weights("model.safetensors", tensors);
  }

  Error refusal() const {
    auto model = model::Model::load(folder.path());
    EXPECT_FALSE(model.has_value());
    return model ? Error{} : model.error();
  }
  std::vector<float> logits(const char* prompt = "p7") const {
    auto model = model::Model::load(folder.path());
    if (!model) throw std::runtime_error(model.error().message);
    return ops::ref::Interpreter(model->plan()).run(oracle.prompt(prompt), 1).values;
  }
  void remove_tensor(std::string_view name) {
    std::erase_if(tensors, [&](const FolderTensor& tensor) { return tensor.name == name; });
  }
  FolderTensor& tensor(std::string_view name) { return *std::ranges::find(tensors, name, &FolderTensor::name); }
  // Two shards and their index, `index` put in place of the right one if it is given.
  void write_shards(std::optional<std::string> index = std::nullopt) const {
    folder.remove("model.safetensors");
    const std::size_t half = tensors.size() / 2;
    folder.write_weights("model-00001-of-00002.safetensors", std::span(tensors).first(half));
    folder.write_weights("model-00002-of-00002.safetensors", std::span(tensors).subspan(half));
    folder.write("model.safetensors.index.json", index ? *index : right_index());
  }
  std::string right_index() const {
    std::string map;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      map += fmt::format("{}\"{}\":\"model-0000{}-of-00002.safetensors\"", i == 0 ? "" : ",", tensors[i].name,
                         i < tensors.size() / 2 ? 1 : 2);
      bytes += tensors[i].bytes.size();
    }
    return fmt::format("{{\"metadata\":{{\"total_size\":{}}},\"weight_map\":{{{}}}}}", bytes, map);
  }

  const Oracle oracle{"llama-gqa-rope3"};
  std::vector<FolderTensor> tensors = oracle_tensors();
  ModelFolder folder{fmt::format("adze_folder_{}", testing::UnitTest::GetInstance()->current_test_info()->name())};
};

TEST_F(Folder, EqualsTheOracle) {
  for (const char* prompt : {"p1", "p7", "p70"}) {
    EXPECT_LT(rel_rms(logits(prompt), oracle.last_logits("BF16", prompt)), 1e-4) << prompt;
  }
}

TEST_F(Folder, ShardsEqualOneFile) {
  const std::vector<float> expected = logits();
  write_shards();
  EXPECT_TRUE(logits() == expected);
  EXPECT_EQ(model::Model::load(folder.path())->weights().folder()->shards().size(), 2u);
}

// Nothing in the format aligns tensors: every address must do, for the slow definitions and for the kernels.
TEST_F(Folder, AnyByteOffsetEqualsAnAlignedOne) {
  const auto on_backend = [&] {
    auto model = model::Model::load(folder.path());
    if (!model) throw std::runtime_error(model.error().message);
    Runner runner(model->plan(), {.prepare = {.threads = 2, .max_batch_rows = 600}});
    return runner.prompt(oracle.prompt("p70"), 1, 64);
  };
  const std::vector<float> expected = logits(), expected_on_backend = on_backend();
  for (const std::size_t shift : {1u, 2u, 3u}) {
    folder.write_weights("model.safetensors", tensors, shift);
    EXPECT_TRUE(logits() == expected) << shift;
    EXPECT_TRUE(on_backend() == expected_on_backend) << shift;
  }
}

TEST_F(Folder, WidenedWeightsEqualTheirOrigin) {
  const std::vector<float> expected = logits();
  for (FolderTensor& tensor : tensors) {
    if (tensor.dtype != "BF16") continue;
    const auto count = static_cast<std::int64_t>(tensor.bytes.size() / 2);
    std::vector<float> values(static_cast<std::size_t>(count));
    tensor::dequantise_row(tensor::DType::bf16, tensor.bytes.data(), values.data(), count);
    const auto bytes = std::as_bytes(std::span(values));
    tensor.dtype = "F32";
    tensor.bytes.assign(bytes.begin(), bytes.end());
  }
  folder.write_weights("model.safetensors", tensors);
  EXPECT_TRUE(logits() == expected);
}

TEST_F(Folder, ATiedOutputEqualsACopyOfTheEmbedding) {
  tensor("lm_head.weight").bytes = tensor("model.embed_tokens.weight").bytes;
  folder.write_weights("model.safetensors", tensors);
  const std::vector<float> expected = logits();
  remove_tensor("lm_head.weight");
  folder.write_weights("model.safetensors", tensors);
  EXPECT_THAT(refusal().message, HasSubstr("tensor 'lm_head.weight' [1280, 64] is missing"));
  folder.write("config.json", config_with(R"("tie_word_embeddings": false)", R"("tie_word_embeddings": true)"));
  EXPECT_TRUE(logits() == expected);
}

TEST_F(Folder, TheTextModelOfAMultimodalOneIsFound) {
  const std::vector<float> expected = logits();
  constexpr std::pair<const char*, const char*> kPlaces[] = {
      {"model.language_model.", ""}, {"language_model.model.", "language_model."}, {"", ""}};
  for (const auto& [decoder, head] : kPlaces) {
    auto renamed = tensors;
    rename_decoder(renamed, decoder, head);
    renamed.push_back({"model.visual.blocks.0.norm.weight", "F32", {1}, std::vector<std::byte>(4)});
    renamed.push_back({"mtp.layers.0.norm.weight", "F8_E4M3", {4}, std::vector<std::byte>(4)});
    folder.write_weights("model.safetensors", renamed);
    EXPECT_TRUE(logits() == expected) << decoder;
    EXPECT_THAT(model::Model::load(folder.path())->notes(), ElementsAre("2 tensors not used"));
  }
  std::string nested = kConfig;
  nested.erase(nested.find(R"("tie_word_embeddings": false, )"), 30);
  folder.write("config.json", fmt::format(R"({{"model_type":"some_vlm","tie_word_embeddings":false,"vision_config":{{}},
                                             "text_config":{}}})",
                                          nested));
  EXPECT_TRUE(logits() == expected);
}

// The value of rope_scaling.
std::string_view config_rope() {
  const std::string_view config = kConfig;
  const std::size_t start = config.find("{\"factor\"");
  return config.substr(start, config.find('}', start) - start + 1);
}

// The same weights under other rotations, against transformers (ROPE_SCALINGS of make_oracle.py).
TEST_F(Folder, RopeScalingsEqualTransformers) {
  const auto expected = SafetensorsFixture::open(oracle_folder("llama-gqa-rope3") / "rope-scalings-hf.safetensors");
  constexpr std::pair<const char*, const char*> kScalings[] = {
      {"linear", R"({"rope_type": "linear", "factor": 4.0})"},
      {"yarn", R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})"},
      {"yarn-attention-factor",
       R"({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, "attention_factor": 0.9,
           "beta_fast": 16.0, "beta_slow": 2.0})"},
      {"yarn-mscale", R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7,
                          "mscale_all_dim": 1.3})"}};
  for (const auto& [name, rope] : kScalings) {
    folder.write("config.json", config_with(config_rope(), rope));
    const auto model = model::Model::load(folder.path());
    ASSERT_TRUE(model.has_value()) << model.error().message;
    for (const char* prompt : {"p70", "p600"}) {
      Runner runner(model->plan(), {.prepare = {.compute = backend::Compute::f32, .max_batch_rows = 600}});
      EXPECT_LT(rel_rms(runner.prompt(oracle.prompt(prompt), 1, 600),
                        expected.floats(fmt::format("{}.{}.last_logits", name, prompt))),
                1e-4)
          << name << ", " << prompt;
    }
  }
}

TEST_F(Folder, RopeOfTheConfigEqualsRopeOfTheMetadata) {
  const auto rope_of = [&](const std::string& rope) {
    folder.write("config.json", config_with(config_rope(), rope));
    auto model = model::Model::load(folder.path());
    if (!model) throw std::runtime_error(model.error().message);
    return model->plan().ropes.front();
  };
  const auto expect_equal = [&](const std::string& rope, const model::RopeSettings& settings) {
    const ops::RopeSpec found = rope_of(rope), expected = model::make_rope(settings);
    EXPECT_EQ(found.inverse_frequency, expected.inverse_frequency) << rope;
    EXPECT_FLOAT_EQ(found.magnitude, expected.magnitude) << rope;
  };
  const model::RopeSettings plain{.dims = 16, .base = 500000.0, .original_context = 2048};
  expect_equal("null", plain);
  expect_equal(R"({"rope_type":"default"})", plain);
  model::RopeSettings linear = plain;
  linear.scaling = model::RopeScaling::linear;
  linear.factor = 4.0;
  expect_equal(R"({"type":"linear","factor":4})", linear);
  model::RopeSettings yarn = linear;
  yarn.scaling = model::RopeScaling::yarn;
  yarn.original_context = 64;
  expect_equal(R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":64})", yarn);
  yarn.beta_fast = 16;
  yarn.beta_slow = 2;
  yarn.attention_factor = 0.5 / (0.1 * std::log(4.0) + 1.0);
  expect_equal(R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":64,"beta_fast":16,"beta_slow":2,
                  "attention_factor":0.5})",
               yarn);
  yarn.attention_factor = 1.0 / (0.1 * std::log(4.0) + 1.0);
  expect_equal(R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":64,"beta_fast":16,"beta_slow":2,
                  "mscale":1.0,"mscale_all_dim":1.0})",
               yarn);

  folder.write("config.json", config_with(fmt::format(R"("rope_theta": 500000.0,
  "rope_scaling": {})",
                                                      config_rope()),
                                          R"("rope_parameters": {"rope_theta": 500000, "rope_type": "linear",
                                             "factor": 4, "partial_rotary_factor": 0.5})"));
  const auto model = model::Model::load(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  linear.dims = 8;
  EXPECT_EQ(model->plan().ropes.front().inverse_frequency, model::make_rope(linear).inverse_frequency);
}

// Every family's table, with the configuration that transformers wrote: a folder equals the GGUF of the same weights.
class FolderOfFamily : public OracleTest {};

TEST_P(FolderOfFamily, EqualsTheGguf) {
  const Oracle oracle(GetParam().model);
  const std::filesystem::path config = oracle.hugging_face() / "config.json";
  if (!exists(config)) GTEST_SKIP() << "set ADZE_TEST_ORACLES to the folder of all oracles for " << GetParam().model;
  const auto gguf = model::Model::load(oracle.gguf(GetParam().type));
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  const ModelFolder folder("adze_folder_of_" + oracle_row_name(GetParam()));
  std::filesystem::copy_file(config, folder.path() / "config.json");
  folder.write_weights("model.safetensors", folder_tensors(*gguf));
  const auto model = model::Model::load(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_TRUE(model->notes().empty()) << model->notes().front();
  EXPECT_EQ(model->plan().kv_layers.size(), gguf->plan().kv_layers.size());
  for (const char* prompt : {"p1", "p7", "p70"}) {
    const auto expected = ops::ref::Interpreter(gguf->plan()).run(oracle.prompt(prompt), 1);
    EXPECT_LT(rel_rms(ops::ref::Interpreter(model->plan()).run(oracle.prompt(prompt), 1).values, expected.values), 1e-5)
        << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, FolderOfFamily,
                         testing::Values(OracleRow{"gemma2", "BF16"}, OracleRow{"gemma3-text", "BF16"},
                                         OracleRow{"llama-tied-mqa-hd24", "Q8_0"}, OracleRow{"granite", "BF16"},
                                         OracleRow{"cohere2", "BF16"}, OracleRow{"ministral3", "BF16"},
                                         OracleRow{"olmo2", "BF16"}, OracleRow{"phi3", "Q8_0"},
                                         OracleRow{"qwen2-bias", "BF16"}, OracleRow{"qwen3-dense", "BF16"},
                                         OracleRow{"smollm3-nope", "Q8_0"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

// --- what is refused ------------------------------------------------------------------------------------------------

TEST_F(Folder, IndexesThatLieAreRefused) {
  const std::string right = right_index();
  const auto with = [&](std::string_view old, std::string_view by) {
    std::string index = right;
    index.replace(index.find(old), old.size(), by);
    return index;
  };
  constexpr std::string_view kSecond = "model-00002-of-00002.safetensors";
  const std::pair<std::string, const char*> kWrong[] = {
      {with(kSecond, "../model-00002-of-00002.safetensors"), "not the plain name"},
      {with(kSecond, "/etc/passwd"), "not the plain name"},
      {with(kSecond, "a\\\\b.safetensors"), "not the plain name"},
      {with(kSecond, "a\\u0000b.safetensors"), "not the plain name"},
      {with(kSecond, ".safetensors"), "not the plain name"},
      {with(kSecond, "config.json"), "not the plain name"},
      {with("\"" + std::string(kSecond) + "\"", "7"), "expected a string"},
      {with(kSecond, "absent.safetensors"), "absent.safetensors"},
      {with(kSecond, "model-00001-of-00002.safetensors"), "is not in 'model-00001-of-00002.safetensors'"},
      {with("\"lm_head.weight\"", "\"other.weight\""), "tensor 'other.weight' is not in"},
      {with("\"lm_head.weight\"", "\"model.norm.weight\""), "has the key 'model.norm.weight' twice"},
      {with("\"total_size\":", "\"total_size\":1"), "promises"},
      {with("\"total_size\":", "\"total_size\":-"), "total_size is -"},
      {R"({"metadata":{},"weight_map":{}})", "empty"},
      {R"({"metadata":{}})", "no weight_map"},
      {R"([1])", "not a JSON object"},
      {right.substr(0, right.size() / 2), "not valid JSON"},
      {"{\"weight_map\":" + std::string(100000, '[') + std::string(100000, ']') + "}", "nested too deeply"},
      {"", "not valid JSON"},
  };
  for (const auto& [index, says] : kWrong) {
    write_shards(index);
    EXPECT_THAT(refusal().message, HasSubstr(says)) << index.substr(0, 200);
  }
  write_shards();
  folder.write_weights("model-00002-of-00002.safetensors", tensors);
  EXPECT_THAT(refusal().message, HasSubstr("is in two files"));
}

TEST_F(Folder, WeightsThatDoNotFitAreRefused) {
  const FolderTensor good = tensor("model.layers.1.self_attn.k_proj.weight");
  tensor("model.layers.1.self_attn.k_proj.weight").shape = {64, 32};
  folder.write_weights("model.safetensors", tensors);
  EXPECT_THAT(
      refusal().message,
      HasSubstr("'model.layers.1.self_attn.k_proj.weight' has the shape [64, 32], expected [32, 64] (implied by "
                "config.json's num_key_value_heads and config.json's head_dim"));
  tensor("model.layers.1.self_attn.k_proj.weight") = good;
  tensor("model.layers.1.self_attn.k_proj.weight").dtype = "F8_E4M3";
  tensor("model.layers.1.self_attn.k_proj.weight").shape = {64, 64};
  folder.write_weights("model.safetensors", tensors);
  EXPECT_EQ(refusal().code, ErrorCode::unsupported_type);
  EXPECT_THAT(refusal().hint, HasSubstr("bfloat16 weights, or a GGUF"));
  remove_tensor("model.layers.1.self_attn.k_proj.weight");
  folder.write_weights("model.safetensors", tensors);
  EXPECT_THAT(refusal().message, HasSubstr("'model.layers.1.self_attn.k_proj.weight' [32, 64] is missing"));
  tensors.push_back(good);
  tensors.push_back({"model.layers.4.self_attn.rotary_emb.inv_freq", "F32", {8}, std::vector<std::byte>(32)});
  folder.write_weights("model.safetensors", tensors);
  EXPECT_TRUE(model::Model::load(folder.path()).has_value());
  tensors.push_back({"model.layers.4.self_attn.q_norm.weight", "F32", {16}, std::vector<std::byte>(64)});
  folder.write_weights("model.safetensors", tensors);
  EXPECT_THAT(refusal().message, HasSubstr("a tensor 'model.layers.4.self_attn.q_norm.weight' that Adze does not"));

  folder.remove("model.safetensors");
  EXPECT_EQ(refusal().code, ErrorCode::not_found);
  folder.write("pytorch_model.bin", "PK");
  EXPECT_THAT(refusal().message, HasSubstr("Python pickle"));
  folder.remove("config.json");
  EXPECT_EQ(refusal().code, ErrorCode::not_a_model);
}

TEST_F(Folder, SettingsThatAdzeLacksAreRefusedByName) {
  const auto extra = [](std::string_view members) {
    return config_with("\"hidden_act\"", fmt::format("{}, \"hidden_act\"", members));
  };
  const std::tuple<std::string, ErrorCode, const char*> kWrong[] = {
      {extra(R"("quantization_config": {"quant_method": "fp8"})"), ErrorCode::unsupported_feature, "by fp8"},
      {extra(R"("quantization_config": {"quant_method": "awq"})"), ErrorCode::unsupported_feature, "by awq"},
      {extra(R"("quantization_config": {"quant_method": "gptq"})"), ErrorCode::unsupported_feature, "by gptq"},
      {extra(R"("quantization_config": {"quant_method": "bitsandbytes"})"), ErrorCode::unsupported_feature,
       "by bitsandbytes"},
      {extra(R"("mlp_bias": true)"), ErrorCode::corrupt_file,
       "tensor 'model.layers.0.mlp.gate_proj.bias' [160] is missing"},
      {config_with("\"attention_bias\": false", "\"attention_bias\": true"), ErrorCode::corrupt_file,
       "tensor 'model.layers.0.self_attn.q_proj.bias' [64] is missing"},
      {extra(R"("is_encoder_decoder": true)"), ErrorCode::unsupported_feature, "is_encoder_decoder"},
      {config_with("\"silu\"", "\"gelu\""), ErrorCode::unsupported_feature, "\"hidden_act\" is \"gelu\""},
      {config_with("\"llama3\"", "\"dynamic\""), ErrorCode::unsupported_feature, "'dynamic'"},
      {config_with("\"llama3\"", "\"longrope\""), ErrorCode::unsupported_feature, "'longrope'"},
      {config_with("\"llama3\"", "\"linear\""), ErrorCode::unsupported_feature, "\"high_freq_factor\""},
      {config_with("\"factor\": 8.0,", ""), ErrorCode::corrupt_file, "no factor"},
      {config_with("\"factor\": 8.0", "\"factor\": 0"), ErrorCode::corrupt_file, "config.json's rope_scaling"},
      {config_with("\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4.0"), ErrorCode::corrupt_file, "more than 4"},
      {config_with("\"model_type\": \"llama\"", "\"model_type\": \"zz-never\""), ErrorCode::unsupported_architecture,
       "'zz-never'"},
      {config_with("\"model_type\": \"llama\",", ""), ErrorCode::corrupt_file, "no model_type"},
      {config_with("\"num_hidden_layers\": 5", "\"num_hidden_layers\": 1e9"), ErrorCode::corrupt_file,
       "config.json's num_hidden_layers is 1000000000"},
      {config_with("\"num_hidden_layers\": 5", "\"num_hidden_layers\": -1"), ErrorCode::corrupt_file, "is -1"},
      {config_with("\"num_hidden_layers\": 5", "\"num_hidden_layers\": 5.5"), ErrorCode::corrupt_file, "whole"},
      {config_with("\"num_hidden_layers\": 5", "\"num_hidden_layers\": null"), ErrorCode::corrupt_file,
       "config.json's num_hidden_layers is missing"},
      {config_with("\"num_hidden_layers\": 5, ", ""), ErrorCode::corrupt_file,
       "config.json's num_hidden_layers is missing"},
      {config_with("\"num_hidden_layers\": 5", "\"num_hidden_layers\": [5, 5]"), ErrorCode::corrupt_file,
       "num_hidden_layers"},
      {config_with("\"hidden_size\": 64", "\"hidden_size\": \"64\""), ErrorCode::corrupt_file, "\"hidden_size\""},
      {config_with("\"vocab_size\": 1280", "\"vocab_size\": 99999999999999999999"), ErrorCode::corrupt_file,
       "vocab_size"},
      {config_with("\"head_dim\": 16", "\"head_dim\": 0"), ErrorCode::corrupt_file, "head_dim"},
      {config_with("\"rope_theta\": 500000.0", "\"rope_theta\": 1e300"), ErrorCode::corrupt_file, "rope_theta"},
      {config_with("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1"), ErrorCode::corrupt_file, "rms_norm_eps"},
      {config_with("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0"), ErrorCode::corrupt_file,
       "true or false"},
      {std::string(kConfig).substr(0, 200), ErrorCode::corrupt_file, "not valid JSON"},
  };
  for (const auto& [config, code, says] : kWrong) {
    folder.write("config.json", config);
    const Error error = refusal();
    EXPECT_EQ(error.code, code) << says << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(says));
  }
  for (const char* method : {"fp8", "awq", "gptq", "bitsandbytes", "compressed-tensors", "hqq", "modelopt"}) {
    folder.write("config.json", extra(fmt::format(R"("quantization_config": {{"quant_method": "{}"}})", method)));
    EXPECT_THAT(refusal().message, HasSubstr(fmt::format("quantised by {} ", method)));
    EXPECT_THAT(refusal().hint, HasSubstr("bfloat16 weights, or a GGUF"));
  }
  folder.write("config.json", extra(R"("some_tools_setting": 3)"));
  EXPECT_THAT(model::Model::load(folder.path())->notes(), ElementsAre(HasSubstr("some_tools_setting")));
}

TEST_F(Folder, AConfigBeyondItsLimitIsRefused) {
  folder.write("config.json", kConfig + std::string(limits::kModelConfigMaxBytes, ' '));
  EXPECT_EQ(refusal().code, ErrorCode::limit_exceeded);
}

// --- the other files ------------------------------------------------------------------------------------------------

TEST_F(Folder, SamplingAdviceComesFromTheGenerationConfig) {
  folder.write("generation_config.json",
               R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05})");
  const auto model = model::Model::load(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const model::GenerationDefaults& advice = model->generation_defaults();
  EXPECT_EQ(advice.temperature, 0.6f);
  EXPECT_EQ(advice.top_p, 0.95f);
  EXPECT_EQ(advice.top_k, 20);
  EXPECT_EQ(advice.repetition_penalty, 1.05f);
  EXPECT_FALSE(advice.min_p.has_value());
  folder.write("generation_config.json", R"({"do_sample": false, "temperature": 0.6})");
  EXPECT_FALSE(model::Model::load(folder.path())->generation_defaults().temperature.has_value());
  folder.write("generation_config.json", R"({"do_sample": true, "top_p": 7})");
  EXPECT_EQ(refusal().code, ErrorCode::corrupt_file);
  EXPECT_THAT(refusal().message, HasSubstr("generation_config.json's top_p is 7"));
  EXPECT_THAT(refusal().hint, HasSubstr("advice on sampling"));
}

TEST_F(Folder, ChatTemplatesByPrecedence) {
  const auto found = [&] { return std::string(model::Model::load(folder.path())->chat_template().value_or("none")); };
  EXPECT_EQ(found(), "none");
  folder.write("chat_template.json", R"({"chat_template": "separate"})");
  EXPECT_EQ(found(), "separate");
  folder.write("tokenizer_config.json", R"({"chat_template": "inside"})");
  EXPECT_EQ(found(), "inside");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                                              {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(found(), "plain");
  folder.write("chat_template.jinja", "own file");
  EXPECT_EQ(found(), "own file");
}

TEST_F(Folder, EndTokensMayBeSeveral) {
  EXPECT_EQ(model::load_folder_tokenizer(folder.path()).error().code, ErrorCode::not_found);
  std::filesystem::copy_file(std::filesystem::path(ADZE_TEST_DATA) / "tokenizers/real/smollm2.tokenizer.json",
                             folder.path() / "tokenizer.json");
  folder.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  folder.write("generation_config.json", R"({"eos_token_id": [2, 0]})");
  auto spec = model::tokenizer_spec_from_folder(folder.path());
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->eos, 2);
  EXPECT_THAT(spec->end_of_generation, ElementsAre(2, 0));
  folder.write("generation_config.json", "{}");
  folder.write("config.json", config_with("\"hidden_act\"", "\"eos_token_id\": 0, \"hidden_act\""));
  EXPECT_THAT(model::tokenizer_spec_from_folder(folder.path())->end_of_generation, ElementsAre(0));
  for (const char* id : {"-1", "99999", "\"two\"", "[2, null]", "1.5"}) {
    folder.write("generation_config.json", fmt::format("{{\"eos_token_id\": {}}}", id));
    EXPECT_EQ(model::tokenizer_spec_from_folder(folder.path()).error().code, ErrorCode::corrupt_file) << id;
  }
}

// As Gemma 3's folders have it: a token for images behind the last row of the text model's embedding.
TEST_F(Folder, AddedTokensWithoutAnEmbeddingAreLeftOut) {
  const std::filesystem::path real = std::filesystem::path(ADZE_TEST_DATA) / "tokenizers/real/smollm2.tokenizer.json";
  std::string tokenizer = read_file(real, 16u << 20).value();
  const std::string_view list = "\"added_tokens\": [";
  const std::size_t at = tokenizer.find(list);
  ASSERT_NE(at, std::string::npos);
  tokenizer.insert(at + list.size(), R"({"id": 49152, "content": "<image>", "special": true},)");
  folder.write("tokenizer.json", tokenizer);
  folder.write("config.json", R"({"vocab_size": 49152})");
  const auto spec = model::tokenizer_spec_from_folder(folder.path());
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->tokens.size(), 49152u);
  EXPECT_TRUE(model::load_folder_tokenizer(folder.path()).has_value());
  folder.write("config.json", R"({"vocab_size": 49153})");
  EXPECT_EQ(model::tokenizer_spec_from_folder(folder.path())->tokens.size(), 49153u);
  folder.write("config.json",
               R"({"text_config": {"vocab_size": 49151}})");  // an ordinary token is beyond: left to the model
  EXPECT_EQ(model::tokenizer_spec_from_folder(folder.path())->tokens.size(), 49153u);
}

}  // namespace
}  // namespace adze::test
