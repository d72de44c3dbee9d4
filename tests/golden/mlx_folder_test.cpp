// Folders as MLX quantises them: any width, group, type of scales and exception gives the bits of the model whose
// weights are those values in float32; and what contradicts itself is refused by name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "format/inspect.hpp"
#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/mlx_weight.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

using tensor::DType;
using ::testing::HasSubstr;
using Scale = tensor::GroupScales::Type;

struct Scheme {
  DType type = DType::mlx_4;
  int group = 64;
  Scale scales = Scale::bf16;
};
// How a module is quantised; nothing: it stays in float32.
using Choice = std::function<std::optional<Scheme>(std::string_view module)>;

constexpr int kVocabulary = 96;

std::string config_with(std::string_view quantization) {
  return fmt::format(R"({{"model_type": "llama", "hidden_act": "silu", "hidden_size": 128, "intermediate_size": 256,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "num_hidden_layers": 2, "vocab_size": 96,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false{}{}}})",
                     quantization.empty() ? "" : ", \"quantization\": ", quantization);
}

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}
std::vector<std::byte> copied(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

const char* dtype_name(Scale type) {
  switch (type) {
    case Scale::f32: return "F32";
    case Scale::f16: return "F16";
    case Scale::bf16: return "BF16";
    case Scale::e8m0: return "U8";
  }
  return "";
}

// A model of random weights, written twice: as MLX would, and as the float32 values that this stands for.
class MlxFolder : public testing::Test {
 protected:
  static std::vector<FolderTensor> random_tensors() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<FolderTensor> tensors;
    const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
      const bool norm = shape.size() == 1;
      std::int64_t count = 1;
      for (const std::int64_t dim : shape) count *= dim;
      std::vector<float> values(static_cast<std::size_t>(count));
      for (float& value : values) value = norm ? 1.0f + 0.1f * normal(random) : 0.1f * normal(random);
      tensors.push_back({std::move(name), "F32", std::move(shape), bytes_of(values)});
    };
    add("model.embed_tokens.weight", {kVocabulary, 128});
    for (int layer = 0; layer < 2; ++layer) {
      const std::string in = fmt::format("model.layers.{}.", layer);
      add(in + "input_layernorm.weight", {128});
      add(in + "self_attn.q_proj.weight", {128, 128});
      add(in + "self_attn.k_proj.weight", {64, 128});
      add(in + "self_attn.v_proj.weight", {64, 128});
      add(in + "self_attn.o_proj.weight", {128, 128});
      add(in + "post_attention_layernorm.weight", {128});
      add(in + "mlp.gate_proj.weight", {256, 128});
      add(in + "mlp.up_proj.weight", {256, 128});
      add(in + "mlp.down_proj.weight", {128, 256});
    }
    add("model.norm.weight", {128});
    add("lm_head.weight", {kVocabulary, 128});
    return tensors;
  }

  void write(const Choice& choose, std::string_view quantization, std::size_t shift = 0) {
    std::vector<FolderTensor> quantised, plain;
    for (const FolderTensor& tensor : base_) {
      const std::string module = tensor.name.substr(0, tensor.name.size() - 7);  // without ".weight"
      std::optional<Scheme> scheme;
      if (tensor.shape.size() == 2) scheme = choose(module);
      plain.push_back(tensor);
      if (!scheme) {
        quantised.push_back(tensor);
        continue;
      }
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      const MlxWeight weight(scheme->type, tensor.shape[0], tensor.shape[1], values, scheme->group, scheme->scales);
      plain.back().bytes = bytes_of(weight.values());
      const auto words = static_cast<std::int64_t>(weight.codes().size()) / 4 / tensor.shape[0];
      const std::int64_t groups = tensor.shape[1] / scheme->group;
      const auto& scales = weight.ref()->groups;
      quantised.push_back(
          {module + ".scales", dtype_name(scales.type), {tensor.shape[0], groups}, copied(weight.scales())});
      quantised.push_back({tensor.name, "U32", {tensor.shape[0], words}, copied(weight.codes())});
      if (scales.biases != nullptr) {
        quantised.push_back(
            {module + ".biases", dtype_name(scales.type), {tensor.shape[0], groups}, copied(weight.biases())});
      }
    }
    mlx.write("config.json", config_with(quantization));
    mlx.write_weights("model.safetensors", quantised, shift);
    dequantised.write("config.json", config_with(""));
    dequantised.write_weights("model.safetensors", plain);
    tensors = std::move(quantised);
  }
  void rewrite() const { mlx.write_weights("model.safetensors", tensors); }
  FolderTensor& tensor(std::string_view name) { return *std::ranges::find(tensors, name, &FolderTensor::name); }

  std::vector<float> logits(const ModelFolder& folder, backend::Compute compute) const {
    auto model = model::Model::load(folder.path());
    if (!model) throw std::runtime_error(model.error().message);
    Runner runner(model->plan(), {.prepare = {.compute = compute, .threads = 2, .max_batch_rows = 70}});
    return runner.prompt(prompt, 1, 64);
  }
  void expect_bits_of_the_dequantised_model() const {
    const std::vector<float> expected = logits(dequantised, backend::Compute::f32);
    EXPECT_TRUE(logits(mlx, backend::Compute::f32) == expected);
    EXPECT_LT(rel_rms(logits(mlx, backend::Compute::automatic), expected), 0.15);
  }
  std::string refusal() const {
    const auto model = model::Model::load(mlx.path());
    return model ? "(loads)" : model.error().message;
  }

  static std::vector<std::int32_t> some_tokens() {
    std::vector<std::int32_t> tokens(70);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * i * 7 % kVocabulary);
    return tokens;
  }
  const std::vector<std::int32_t> prompt = some_tokens();
  const ModelFolder mlx{folder_name("mlx")}, dequantised{folder_name("plain")};
  std::vector<FolderTensor> tensors;

 private:
  static std::string folder_name(const char* kind) {
    return fmt::format("adze_{}_{}", kind, testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  const std::vector<FolderTensor> base_ = random_tensors();
};

constexpr const char* kFourBit = R"({"group_size": 64, "bits": 4})";

TEST_F(MlxFolder, EveryWidthAndGroupHasTheBitsOfItsDequantisedModel) {
  constexpr Scale kScales[] = {Scale::bf16, Scale::f16, Scale::f32};
  std::size_t scales = 0;
  for (const DType type : {DType::mlx_2, DType::mlx_3, DType::mlx_4, DType::mlx_5, DType::mlx_6, DType::mlx_8}) {
    for (const int group : {32, 64, 128}) {
      const Scheme scheme{type, group, kScales[scales++ % 3]};
      const std::string text =
          fmt::format(R"({{"group_size": {}, "bits": {}}})", group, tensor::dtype_info(type).code_bits);
      SCOPED_TRACE(text);
      write([&](std::string_view) { return scheme; }, text, scales % 4);
      const std::vector<float> expected = logits(dequantised, backend::Compute::f32);
      EXPECT_TRUE(logits(mlx, backend::Compute::f32) == expected);
    }
    scales += 1;
  }
}

TEST_F(MlxFolder, TheReferenceComputesWithTheSameValues) {
  write([](std::string_view) { return Scheme{DType::mlx_3, 32}; }, R"({"group_size": 32, "bits": 3})");
  const auto codes = model::Model::load(mlx.path()), values = model::Model::load(dequantised.path());
  ASSERT_TRUE(codes && values);
  const auto few = std::span(prompt).first(7);
  EXPECT_TRUE(ops::ref::Interpreter(codes->plan()).run(few, 1).values ==
              ops::ref::Interpreter(values->plan()).run(few, 1).values);
}

TEST_F(MlxFolder, ModulesThatConfigListsAreOtherwise) {
  const std::map<std::string_view, std::optional<Scheme>> exceptions{
      {"lm_head", Scheme{DType::mlx_8, 64}},
      {"model.embed_tokens", Scheme{DType::mlx_6, 32}},
      {"model.layers.1.mlp.down_proj", Scheme{DType::mlx_2, 128}},
      {"model.layers.0.self_attn.q_proj", Scheme{DType::mlx_mxfp4, 32}},
      {"model.layers.1.self_attn.v_proj", std::nullopt}};
  write(
      [&](std::string_view module) {
        const auto found = exceptions.find(module);
        return found == exceptions.end() ? Scheme{} : found->second;
      },
      R"({"group_size": null, "bits": 4, "mode": "affine", "lm_head": {"group_size": 64, "bits": 8},
          "model.embed_tokens": {"bits": 6, "group_size": 32, "mode": "affine"},
          "model.layers.1.mlp.down_proj": {"bits": 2, "group_size": 128},
          "model.layers.0.self_attn.q_proj": {"mode": "mxfp4"},
          "model.layers.1.self_attn.v_proj": false, "model.layers.9.absent": {"bits": 3}})");
  expect_bits_of_the_dequantised_model();
}

// Older files say less; then the shapes do, and where two readings fit, the width that the model needs.
TEST_F(MlxFolder, ShapesDecideWhatConfigLeavesOpen) {
  write(
      [](std::string_view module) {
        return module == "lm_head"                      ? Scheme{DType::mlx_8, 32}  // as many bits a group as 4 of 64
               : module == "model.layers.0.mlp.up_proj" ? Scheme{DType::mlx_8, 64}
               : module == "model.embed_tokens"         ? Scheme{DType::mlx_mxfp4, 32}
                                                        : Scheme{};
      },
      kFourBit);
  expect_bits_of_the_dequantised_model();
}

TEST_F(MlxFolder, Mxfp4HasTheBitsOfItsDequantisedModel) {
  write([](std::string_view) { return Scheme{DType::mlx_mxfp4, 32}; },
        R"({"group_size": 32, "bits": 4, "mode": "mxfp4"})", 1);
  const std::vector<float> expected = logits(dequantised, backend::Compute::f32);
  EXPECT_TRUE(logits(mlx, backend::Compute::f32) == expected);
  EXPECT_LT(rel_rms(logits(mlx, backend::Compute::automatic), expected), 0.15);
}

TEST_F(MlxFolder, AnyByteOffsetEqualsAnAlignedOne) {
  const auto choose = [](std::string_view) { return Scheme{DType::mlx_5, 64, Scale::f32}; };
  std::vector<float> expected, automatic;
  for (const std::size_t shift : {0u, 1u, 2u, 3u}) {
    write(choose, R"({"group_size": 64, "bits": 5})", shift);
    const auto f32 = logits(mlx, backend::Compute::f32), int8 = logits(mlx, backend::Compute::automatic);
    if (expected.empty()) expected = f32, automatic = int8;
    EXPECT_TRUE(f32 == expected && int8 == automatic) << shift;
  }
}

TEST_F(MlxFolder, IsInspectedAsItsWeights) {
  write([](std::string_view) { return Scheme{}; }, kFourBit);
  const auto model = model::Model::load(mlx.path());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_TRUE(model->notes().empty());
  const auto plain = model::Model::load(dequantised.path());
  EXPECT_EQ(model->parameter_count(), plain->parameter_count());
  const auto report = format::inspect(*model->weights().folder(), model->weights().mlx());
  EXPECT_EQ(report.format, "safetensors folder, MLX 4-bit, group 64");
  EXPECT_EQ(report.elements, static_cast<std::uint64_t>(plain->parameter_count()));
  const auto& head = *std::ranges::find(report.tensors, "lm_head.weight", &format::InspectedTensor::name);
  EXPECT_EQ(head.type, "MLX 4-bit, group 64");
  EXPECT_EQ(head.shape, (std::vector<std::int64_t>{96, 128}));
  EXPECT_EQ(head.bytes, 96u * (64 + 2 * 2 * 2));
}

// The encoder of these tests is MLX's own, byte for byte: so the folders above are what MLX writes at any width.
TEST(MlxEncoder, WritesTheBytesThatMlxWrote) {
  for (const auto& [type, bits] : {std::pair{"MLX_4BIT", DType::mlx_4}, {"MLX_8BIT", DType::mlx_8}}) {
    for (const char* folder : {type, "HF"}) {
      const OracleRow row{"qwen3-dense", folder};
      if (const std::string why = missing_oracle(row); !why.empty()) GTEST_SKIP() << why;
    }
    const Oracle oracle("qwen3-dense");
    const auto plain = SafetensorsFixture::open(oracle.hugging_face() / "model.safetensors");
    const auto mlx = SafetensorsFixture::open(oracle.hugging_face(type) / "model.safetensors");
    int modules = 0;
    for (const std::string& name : mlx.names()) {
      if (!name.ends_with(".scales")) continue;
      const std::string module = name.substr(0, name.size() - 7);
      const auto& shape = plain.array(module + ".weight").shape;
      const MlxWeight weight(bits, shape[0], shape[1], plain.floats(module + ".weight"), 64);
      EXPECT_TRUE(std::ranges::equal(weight.codes(), mlx.bytes(module + ".weight"))) << module;
      EXPECT_TRUE(std::ranges::equal(weight.scales(), mlx.bytes(name))) << module;
      EXPECT_TRUE(std::ranges::equal(weight.biases(), mlx.bytes(module + ".biases"))) << module;
      ++modules;
    }
    EXPECT_GT(modules, 20);
  }
}

// --- what is refused -------------------------------------------------------------------------------------------------

TEST_F(MlxFolder, WeightsThatContradictThemselvesAreRefused) {
  constexpr const char* kModule = "model.layers.1.self_attn.k_proj";
  const std::string weight = fmt::format("{}.weight", kModule), scales = fmt::format("{}.scales", kModule),
                    biases = fmt::format("{}.biases", kModule);
  const auto expect_refused = [&](const char* says, const std::function<void()>& change,
                                  std::string_view quantization = kFourBit) {
    write([](std::string_view) { return Scheme{}; }, quantization);
    change();
    rewrite();
    EXPECT_THAT(refusal(), HasSubstr(says));
  };
  const auto remove = [&](const std::string& name) {
    std::erase_if(tensors, [&](const FolderTensor& t) { return t.name == name; });
  };
  expect_refused(
      "'model.layers.1.self_attn.k_proj.weight' holds codes, but 'model.layers.1.self_attn.k_proj.scales' is",
      [&] { remove(scales); });
  expect_refused("'model.layers.1.self_attn.k_proj.biases' is missing", [&] { remove(biases); });
  expect_refused("has the shape [64, 16], its scales have [32, 4]", [&] { tensor(scales).shape = {32, 4}; });
  expect_refused("has scales BF16 [64, 2], but biases F16 [64, 2]", [&] { tensor(biases).dtype = "F16"; });
  expect_refused("has scales BF16 [64, 2], but biases BF16 [128, 1]", [&] { tensor(biases).shape = {128, 1}; });
  expect_refused("holds scales of type I16", [&] { tensor(scales).dtype = "I16"; });
  expect_refused("has 14 words and 2 BF16 scales a row, which is neither MLX 4-bit, group 64 nor any other that there",
                 [&] {
                   tensor(weight).shape = {64, 14};
                   tensor(weight).bytes.resize(64 * 14 * 4);
                 });
  expect_refused(
      "has 16 words and 2 BF16 scales a row, which is not the MLX 8-bit, group 64 that config.json gives it", [] {},
      R"({"group_size": 64, "bits": 4, "model.layers.1.self_attn.k_proj": {"group_size": 64, "bits": 8}})");
  expect_refused(
      "holds codes, but config.json says that it is not quantised", [] {},
      R"({"group_size": 64, "bits": 4, "model.layers.1.self_attn.k_proj": false})");
  expect_refused(
      "has the shape [64, 64] as MLX 8-bit, group 32, expected [64, 128]", [] {},
      R"({"group_size": 64, "bits": 4, "model.layers.1.self_attn.k_proj": {"group_size": 32, "bits": 8}})");
  expect_refused("a tensor 'model.layers.1.self_attn.k_norm.weight' that Adze does not", [&] {
    for (const char* part : {"weight", "scales", "biases"}) {
      FolderTensor extra = tensor(fmt::format("{}.{}", kModule, part));
      extra.name = fmt::format("model.layers.1.self_attn.k_norm.{}", part);
      tensors.push_back(extra);
    }
  });
  expect_refused("of type MLX4, which cannot hold a norm or a bias", [&] {
    remove("model.norm.weight");
    tensors.push_back({"model.norm.weight", "U32", {1, 16}, std::vector<std::byte>(64)});
    tensors.push_back({"model.norm.scales", "BF16", {1, 2}, std::vector<std::byte>(4)});
    tensors.push_back({"model.norm.biases", "BF16", {1, 2}, std::vector<std::byte>(4)});
  });
}

TEST_F(MlxFolder, SchemesThatAdzeLacksAreRefusedByName) {
  write([](std::string_view) { return Scheme{}; }, kFourBit);
  const std::pair<const char*, const char*> kWrong[] = {
      {R"({"group_size": 64, "bits": 7})", "\"quantization\" asks for 7 bits in groups of 64"},
      {R"({"group_size": 64, "bits": 1})", "asks for 1 bits in groups of 64"},
      {R"({"group_size": 16, "bits": 4})", "asks for 4 bits in groups of 16"},
      {R"({"group_size": 4294967360, "bits": 4})", "in groups of 4294967360"},
      {R"({"group_size": 64, "bits": 4, "lm_head": {"bits": 9}})", "\"quantization\" of 'lm_head' asks for 9 bits"},
      {R"({"group_size": 64, "bits": 4, "mode": "mxfp4"})", "asks for 4 bits in groups of 64 in mode mxfp4"},
      {R"({"group_size": 16, "bits": 4, "mode": "nvfp4"})", "asks for the mode 'nvfp4'"},
      {R"({"group_size": 32, "bits": 8, "mode": "mxfp8"})", "asks for the mode 'mxfp8'"},
      {R"({"group_size": 64, "bits": "4"})", "bits"},
      {R"({"group_size": 64, "bits": 4, "mode": 1})", "mode"},
      {R"({"group_size": 64, "bits": 4, "lm_head": {"bits": [8]}})", "bits"},
  };
  for (const auto& [quantization, says] : kWrong) {
    mlx.write("config.json", config_with(quantization));
    EXPECT_THAT(refusal(), HasSubstr(says)) << quantization;
  }
  // Codes without anything that says what they are.
  mlx.write("config.json", config_with(""));
  EXPECT_THAT(refusal(), HasSubstr("is of type U32, which Adze does not compute with"));
  // A mode of which only the scales' type speaks.
  mlx.write("config.json", config_with(kFourBit));
  for (const auto& [groups, mode] : {std::pair{8, "nvfp4"}, {2, "mxfp8"}}) {
    tensor("lm_head.scales") = {"lm_head.scales",
                                "U8",
                                {kVocabulary, groups},
                                std::vector<std::byte>(static_cast<std::size_t>(kVocabulary * groups))};
    rewrite();
    EXPECT_THAT(refusal(), HasSubstr(fmt::format("'lm_head.weight' is in MLX's mode {}", mode)));
  }
}

}  // namespace
}  // namespace adze::test
