// Commands that write model files: what they make runs, and nothing is overwritten unasked.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/e2e/process.hpp"

namespace adze::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 400})";

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

TEST_F(ModelFiles, ConvertSendsAGgufToQuantize) {
  const std::string gguf = std::string(ADZE_TEST_DATA) + "/oracles/llama-gqa-rope3/llama-gqa-rope3-Q8_0.gguf";
  const Outcome refused = adze({"convert", gguf});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is a GGUF file already"));
  EXPECT_THAT(refused.err, HasSubstr("adze quantize"));
}

}  // namespace
}  // namespace adze::e2e
