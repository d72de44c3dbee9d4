// Commands that write model files: what they make runs, and nothing is overwritten unasked.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/e2e/process.hpp"

namespace adze::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 400})";

constexpr const char* kTokenizer = R"({"model": {"type": "BPE", "ignore_merges": true,
  "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "added_tokens": [
  {"id": 329, "content": "<begin>", "special": true}, {"id": 330, "content": "<end>", "special": true}]})";

class ModelFiles : public ::testing::Test {
 protected:
  Outcome adze(std::vector<std::string> arguments) { return run(box_, {std::move(arguments), {}, {}, {}}); }
  Sandbox box_;
};

TEST_F(ModelFiles, ASyntheticModelRunsAndChats) {
  const std::string config = box_.write("config.json", kConfig), out = box_.file("synthetic.gguf");
  const Outcome written = adze({"synth", config, out, "--type", "q8_0"});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const Outcome answer = adze({"run", out, "the tea is on the table", "--max-tokens", "4", "--seed", "1"});
  EXPECT_EQ(answer.exit_code, 0) << answer.err;

  const Outcome again = adze({"synth", config, out});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("exists"));
  EXPECT_EQ(adze({"synth", config, out, "--force"}).exit_code, 0);
}

TEST_F(ModelFiles, SynthSaysWhatItHas) {
  EXPECT_THAT(adze({"synth", "--list"}).out, HasSubstr("llama-3.1-8b"));
  const Outcome unknown = adze({"synth", "llama-9", box_.file("x.gguf")});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("'llama-9' is neither a built-in shape nor a file"));
  EXPECT_FALSE(std::filesystem::exists(box_.file("x.gguf")));
}

TEST_F(ModelFiles, AManifestPinsTheModel) {
  const std::string config = box_.write("config.json", kConfig), out = box_.file("synthetic.gguf");
  ASSERT_EQ(adze({"synth", config, out, "--type", "q8_0"}).exit_code, 0);
  EXPECT_EQ(adze({"manifest", out, "--check"}).exit_code, 3);
  ASSERT_EQ(adze({"manifest", out}).exit_code, 0);
  EXPECT_EQ(adze({"manifest", out}).exit_code, 2);  // it exists
  EXPECT_EQ(adze({"manifest", out, "--check"}).exit_code, 0);
  ASSERT_EQ(adze({"synth", config, out, "--type", "q4_0", "--force"}).exit_code, 0);
  const Outcome refused = adze({"run", out, "hello"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err, HasSubstr("synthetic.gguf.manifest.json: the field \"quantisation.Q4_0\" is missing"));
}

// Not even with --force, and by whatever name.
TEST_F(ModelFiles, NoCommandWritesOverWhatItReads) {
  const auto expect_refused = [&](std::vector<std::string> arguments, const std::filesystem::path& input) {
    const auto size = std::filesystem::file_size(input);
    arguments.emplace_back("--force");
    const Outcome refused = adze(arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments[0];
    EXPECT_THAT(refused.err, HasSubstr("is one of the files that are read")) << arguments[0];
    EXPECT_EQ(std::filesystem::file_size(input), size) << arguments[0];
  };
  const std::string config = box_.write("config.json", kConfig), gguf = box_.file("m.gguf");
  expect_refused({"synth", config, config}, config);

  const std::string text = box_.write("text.txt", "some words"), link = box_.file("link.gguf");
  ASSERT_EQ(adze({"synth", config, gguf, "--type", "q8_0"}).exit_code, 0);
  std::filesystem::create_symlink(gguf, link);
  expect_refused({"imatrix", gguf, "-f", text, "-o", gguf}, gguf);
  expect_refused({"imatrix", gguf, "-f", text, "-o", link}, gguf);
  expect_refused({"imatrix", gguf, "-f", text, "-o", text}, text);

  const std::filesystem::path folder = box_.path() / "folder";
  std::filesystem::copy(std::string(ADZE_TEST_DATA) + "/oracles/granite/hf", folder);
  box_.write("folder/tokenizer.json", kTokenizer);
  for (const char* input : {"model.safetensors", "config.json", "tokenizer.json"})
    expect_refused({"convert", folder, folder / input}, folder / input);
  const Outcome beside = adze({"convert", folder, folder / "out.gguf"});
  EXPECT_EQ(beside.exit_code, 0) << beside.err;
  EXPECT_EQ(adze({"convert", folder, folder / "out.gguf", "--force"}).exit_code, 0);
}

TEST_F(ModelFiles, ConvertSendsAGgufToQuantize) {
  const std::string gguf = std::string(ADZE_TEST_DATA) + "/oracles/llama-gqa-rope3/llama-gqa-rope3-Q8_0.gguf";
  const Outcome refused = adze({"convert", gguf});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is a GGUF file already"));
  EXPECT_THAT(refused.err, HasSubstr("adze quantize"));
}

}  // namespace
}  // namespace adze::e2e
