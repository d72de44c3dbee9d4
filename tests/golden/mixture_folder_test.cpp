// Mixtures of experts from Hugging Face folders: which bytes they are views of, what is refused, and that the layouts
// that checkpoints use mean the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "golden/folder_of_gguf.hpp"
#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::int32_t> kTokens{5, 6, 7};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class MixtureFolder : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* model : {"qwen3-moe", "qwen3_5-moe", "gpt-oss"}) {
      if (const auto why = missing_oracle({model, "HF"}); !why.empty()) GTEST_SKIP() << why;
    }
  }
  // An oracle's folder with one thing changed.
  struct Folder {
    ModelFolder folder;
    std::string config;
    std::vector<FolderTensor> tensors;

    explicit Folder(const std::string& model, std::string_view type = "HF")
        : folder("adze_mixture_" + model), config(text_of(Oracle(model).hugging_face(type) / "config.json")) {
      const std::filesystem::path weights = Oracle(model).hugging_face(type) / "model.safetensors";
      tensors = exists(weights) ? read_tensors(weights)
                                : read_tensors(Oracle(model).write_folder()->path() / "model.safetensors");
    }
    FolderTensor& tensor(std::string_view name) { return *std::ranges::find(tensors, name, &FolderTensor::name); }
    void set(std::string_view key, std::string_view value) {  // of a line of its own
      const std::size_t at = config.find(fmt::format("\"{}\": ", key));
      const std::string member = fmt::format("\"{}\": {}", key, value);
      if (at == config.npos) {
        config.insert(config.find('{') + 1, member + ",");
      } else {
        config.replace(at, config.find_first_of(",\n", at) - at, member);
      }
    }
    Result<model::Model> load() const {
      folder.write("config.json", config);
      folder.write_weights("model.safetensors", tensors);
      return model::Model::load(folder.path());
    }
    std::string refusal() const {
      const auto model = load();
      EXPECT_FALSE(model.has_value()) << "loaded";
      return model ? "" : model.error().message;
    }
    std::vector<float> logits() const {
      const auto model = load();
      if (!model) throw std::runtime_error(model.error().message);
      return ops::ref::Interpreter(model->plan()).run(kTokens, 1).values;
    }
  };
  static const ops::Experts::Weights& experts_of(const model::Model& model, int layer) {
    for (const ops::Step& step : model.plan().steps) {
      const auto* experts = std::get_if<ops::Experts>(&step);
      if (experts != nullptr && layer-- == 0) return experts->routed;
    }
    throw std::runtime_error("no such layer");
  }
};

// The digests are of the folders that transformers 5.24 saved when the oracles were made, which do not ship them.
TEST_F(MixtureFolder, WrittenFromAGgufEqualsWhatTransformersSaved) {
  constexpr std::pair<const char*, const char*> kSaved[] = {{"qwen3-moe", "6931a27bd8fb69d01c41d933cf86c56c"},
                                                            {"qwen3-next", "8d9bbf8e3188aafd7b13a9a99bbe70c9"},
                                                            {"gemma4-moe", "2e53f680b5873218a468b5f7aa74ed09"},
                                                            {"gpt-oss", "9ad43861400e3053132d2c6ca75dcff6"}};
  for (const auto& [model, digest] : kSaved) {
    const auto folder = Oracle(model).write_folder();
    EXPECT_EQ(to_hex(digest_of(read_tensors(folder->path() / "model.safetensors"))), digest) << model;
  }
}

TEST_F(MixtureFolder, ExpertsAreSlicesOfTheFile) {
  const auto model = Folder("qwen3-moe").load();
  ASSERT_TRUE(model.has_value()) << model.error().message;
  for (int layer = 0; layer < 4; ++layer) {
    const ops::Experts::Weights& w = experts_of(*model, layer);
    for (const auto& [weight, name] : {std::pair{w.gate, "gate"}, {w.up, "up"}, {w.down, "down"}}) {
      ASSERT_EQ(weight->slices.size(), 8u);
      for (std::size_t e = 0; e < 8; ++e) {
        const auto* stored =
            model->weights().find(fmt::format("model.layers.{}.mlp.experts.{}.{}_proj.weight", layer, e, name));
        EXPECT_EQ(weight->slices[e], stored->bytes.data());
        EXPECT_EQ(weight->row(static_cast<std::int64_t>(e) * weight->shape[1] + 1), stored->row(1));
      }
    }
  }
}

// As released Qwen3.5 checkpoints have them: [E, 2 I, H], an expert's gate rows before its up rows.
TEST_F(MixtureFolder, ExpertsInOneTensorMeanTheSame) {
  Folder folder("qwen3_5-moe");
  const std::vector<float> expected = folder.logits();
  for (int layer = 0; layer < 4; ++layer) {
    const std::string start = fmt::format("model.layers.{}.mlp.experts.", layer);
    FolderTensor gate_up{start + "gate_up_proj", "BF16", {8, 64, 64}, {}},
        down{start + "down_proj", "BF16", {8, 64, 32}, {}};
    for (int e = 0; e < 8; ++e) {
      const auto append = [&](FolderTensor& to, const char* name) {
        const FolderTensor& from = folder.tensor(fmt::format("{}{}.{}_proj.weight", start, e, name));
        to.bytes.insert(to.bytes.end(), from.bytes.begin(), from.bytes.end());
      };
      append(gate_up, "gate");
      append(gate_up, "up");
      append(down, "down");
    }
    std::erase_if(folder.tensors, [&](const FolderTensor& t) { return t.name.starts_with(start); });
    folder.tensors.push_back(std::move(gate_up));
    folder.tensors.push_back(std::move(down));
  }
  EXPECT_TRUE(folder.logits() == expected);
  const auto model = folder.load();
  const ops::Experts::Weights& w = experts_of(*model, 1);
  const auto* stored = model->weights().find("model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(w.gate->row(32), stored->row(64));
  EXPECT_EQ(w.up->row(32), stored->row(96));
  EXPECT_EQ(w.down->bytes.data(), model->weights().find("model.layers.1.mlp.experts.down_proj")->bytes.data());
}

TEST_F(MixtureFolder, EveryExpertMustBeThereAndFit) {
  const std::string name = "model.layers.2.mlp.experts.3.up_proj.weight";
  Folder folder("qwen3-moe");
  const FolderTensor good = folder.tensor(name);
  folder.tensor(name).shape = {64, 32};
  EXPECT_THAT(folder.refusal(), AllOf(HasSubstr("'" + name + "' has the shape [64, 32], expected [32, 64]"),
                                      HasSubstr("config.json's moe_intermediate_size")));
  folder.tensor(name) = good;
  folder.tensor(name).dtype = "F16";
  EXPECT_THAT(folder.refusal(), AllOf(HasSubstr(name), HasSubstr("all experts of a layer of one type")));
  std::erase_if(folder.tensors, [&](const FolderTensor& t) { return t.name == name; });
  EXPECT_THAT(folder.refusal(), HasSubstr("'" + name + "' [32, 64] is missing"));
  folder.tensors.push_back(good);
  folder.set("num_local_experts", "9");
  EXPECT_THAT(folder.refusal(), AllOf(HasSubstr("config.json's num_local_experts"), HasSubstr("expected [9, 64]")));
  folder.set("num_local_experts", "7");
  EXPECT_THAT(folder.refusal(), HasSubstr("expected [7, 64]"));
  folder.set("num_local_experts", "8");
  folder.tensors.push_back({"model.layers.2.mlp.experts.8.up_proj.weight", "BF16", {32, 64}, good.bytes});
  EXPECT_THAT(folder.refusal(), HasSubstr("a tensor 'model.layers.2.mlp.experts.8.up_proj.weight'"));
}

TEST_F(MixtureFolder, SettingsThatAreNotComputedAreRefusedByTheirName) {
  constexpr std::tuple<const char*, const char*, const char*> kRefused[] = {
      {"qwen3-moe", "norm_topk_prob", "false"},  {"qwen3-moe", "decoder_sparse_step", "2"},
      {"qwen3-moe", "mlp_only_layers", "[0]"},   {"qwen3-moe", "num_experts_per_tok", "9"},
      {"qwen3_5-moe", "attention_bias", "true"}, {"gpt-oss", "swiglu_limit", "5.0"},
      {"gpt-oss", "swiglu_alpha", "2.0"},        {"gpt-oss", "hidden_act", "\"gelu\""},
  };
  for (const auto& [model, key, value] : kRefused) {
    Folder folder(model);
    folder.set(key, value);
    EXPECT_THAT(folder.refusal(), HasSubstr(key)) << model;
  }
}

TEST_F(MixtureFolder, PartsOfMxfp4MustFitTogether) {
  if (const auto why = missing_oracle({"gpt-oss", "HF_MXFP4"}); !why.empty()) GTEST_SKIP() << why;
  const std::string name = "model.layers.1.mlp.experts.down_proj_scales";
  Folder folder("gpt-oss", "HF_MXFP4");
  EXPECT_TRUE(folder.load()->notes().empty());
  const FolderTensor good = folder.tensor(name);
  folder.tensor(name).shape = {6, 32, 4};
  EXPECT_THAT(folder.refusal(), AllOf(HasSubstr(name), HasSubstr("[6, 32, 4], expected U8 [6, 64, 2]")));
  folder.tensor(name) = good;
  folder.tensor(name).dtype = "I8";
  EXPECT_THAT(folder.refusal(), AllOf(HasSubstr(name), HasSubstr("is I8")));
  std::erase_if(folder.tensors, [&](const FolderTensor& t) { return t.name == name; });
  EXPECT_THAT(folder.refusal(), HasSubstr("'" + name + "' [6, 64, 2] is missing"));
}

// transformers rounds YaRN's ramp unless it is told not to.
TEST_F(MixtureFolder, TheRampOfYarnIsRoundedUnlessTheConfigSaysNot) {
  Folder folder("gpt-oss");
  EXPECT_FALSE(folder.load()->hyperparameters().rope.round_ramp);
  folder.set("truncate", "true");
  EXPECT_TRUE(folder.load()->hyperparameters().rope.round_ramp);
  folder.config.replace(folder.config.find("\"truncate\""), 10, "\"mscale\"");
  folder.set("mscale", "0.0");
  EXPECT_TRUE(folder.load()->hyperparameters().rope.round_ramp);
  folder.config.replace(folder.config.find("\"rope_scaling\""), 14, "\"not_a_scaling\"");
  EXPECT_THAT(folder.refusal(), HasSubstr("a rotation that it does not describe"));
}

// What only an import may say, a GGUF file cannot.
TEST_F(MixtureFolder, KeysOfTheImportCountForNothingInAGguf) {
  GgufVariant as_is(Oracle("qwen3_5-moe").gguf("BF16")), claims(Oracle("qwen3_5-moe").gguf("BF16"));
  claims.set_bool("qwen35moe.folder.grouped_value_heads", true).set_bool("qwen35moe.folder.round_ramp", false);
  const auto expected = as_is.load(), found = claims.load();
  ASSERT_TRUE(expected.has_value() && found.has_value());
  EXPECT_TRUE(found->hyperparameters().layers.front().delta.tiled);
  EXPECT_TRUE(found->hyperparameters().rope.round_ramp);
  EXPECT_EQ(ops::ref::Interpreter(expected->plan()).run(kTokens, 1).values,
            ops::ref::Interpreter(found->plan()).run(kTokens, 1).values);
}

}  // namespace
}  // namespace adze::test
