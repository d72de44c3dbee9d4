// Folders as GGUF files, against the files that llama.cpp's converter made of the same folders.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "base/file.hpp"
#include "convert/folder.hpp"
#include "format/gguf.hpp"
#include "golden/folder_of_gguf.hpp"
#include "golden/oracle.hpp"
#include "model/huggingface/vocabulary.hpp"
#include "model/vocabulary.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

using ::testing::HasSubstr;

// A folder and what the converter of llama.cpp made of it.
struct Pair {
  const char* model;
  const char* folder;  // "HF", "HF_VLM", "HF_MXFP4"
  const char* gguf;    // "BF16"
  bool exact_logits = true;
};

std::ostream& operator<<(std::ostream& out, const Pair& pair) { return out << pair.model << '/' << pair.folder; }

struct Converted {
  std::unique_ptr<ModelFolder> made;  // where the oracle has no weights or no tokenizer for its folder
  bool has_own_vocabulary = false;    // it is not the oracle's
  std::filesystem::path folder;
  std::string bytes;
  format::GgufFile file;
};

// The oracles of this repository have no text: a vocabulary of theirs is made, whose last tokens are those of their
// config.json.
std::unique_ptr<ModelFolder> with_tokenizer(const std::filesystem::path& folder) {
  auto made = std::make_unique<ModelFolder>("adze_convert_" + folder.parent_path().filename().string());
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(folder / file, made->path() / file);
  made->write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "added_tokens": [
    {"id": 329, "content": "<begin>", "special": true}, {"id": 330, "content": "<end>", "special": true}]})");
  return made;
}

Converted convert(const Oracle& oracle, const char* type, const convert::WriteOptions& options = {}) {
  Converted out;
  out.folder = oracle.hugging_face(type);
  if (!std::filesystem::exists(out.folder / "model.safetensors")) {
    out.made = oracle.write_folder();
    out.folder = out.made->path();
  } else if (!std::filesystem::exists(out.folder / "tokenizer.json")) {
    out.made = with_tokenizer(out.folder);
    out.has_own_vocabulary = true;
    out.folder = out.made->path();
  }
  auto planned = convert::plan_conversion(out.folder, options);
  if (!planned) throw std::runtime_error(planned.error().message);
  out.bytes = planned->file.to_bytes();
  auto file = format::GgufFile::parse(std::as_bytes(std::span(out.bytes.data(), out.bytes.size())), "converted.gguf");
  if (!file) throw std::runtime_error(file.error().message);
  out.file = std::move(*file);
  return out;
}

class Convert : public testing::TestWithParam<Pair> {
 protected:
  void SetUp() override {
    for (const char* type : {GetParam().folder, GetParam().gguf}) {
      const std::string why = missing_oracle({GetParam().model, type});
      if (!why.empty()) GTEST_SKIP() << why;
    }
  }
};

TEST_P(Convert, TensorsAreThoseOfLlamaCpp) {
  const Oracle oracle(GetParam().model);
  const Converted ours = convert(oracle, GetParam().folder);
  const auto theirs = format::GgufFile::open(oracle.gguf(GetParam().gguf));
  ASSERT_TRUE(theirs) << theirs.error().message;
  EXPECT_EQ(ours.file.tensors().size(), theirs->tensors().size());
  for (const format::GgufTensor& expected : theirs->tensors()) {
    const format::GgufTensor* found = ours.file.find_tensor(expected.view.name);
    ASSERT_NE(found, nullptr) << expected.view.name;
    EXPECT_EQ(found->view.shape.elements(), expected.view.shape.elements()) << expected.view.name;
    EXPECT_EQ(found->view.columns(), expected.view.columns()) << expected.view.name;
    // The oracle's own script kept everything called ssm_a... in float32, the gate's small projection with it.
    if (std::string_view(expected.view.name).ends_with("ssm_alpha.weight")) continue;
    EXPECT_EQ(found->view.type, expected.view.type) << expected.view.name;
    EXPECT_TRUE(std::ranges::equal(found->view.bytes, expected.view.bytes)) << expected.view.name;
  }
}

TEST_P(Convert, MetadataSaysWhatThatOfLlamaCppSays) {
  const Oracle oracle(GetParam().model);
  const Converted ours = convert(oracle, GetParam().folder);
  const auto theirs = format::GgufFile::open(oracle.gguf(GetParam().gguf));
  ASSERT_TRUE(theirs) << theirs.error().message;
  const std::string architecture(theirs->architecture());
  // Names of files; what follows from others; vocabularies, whose ids are compared below; what is so where nothing is
  // said (no rope scaling, no window); yarn_log_multiplier, whose quotient is in attn_factor.
  const std::vector<std::string> left_out{"general.name",
                                          architecture + ".full_attention_interval",
                                          "gpt-oss.feed_forward_length",
                                          "cohere2.rope.scaling.type",
                                          "mistral3.rope.scaling.yarn_log_multiplier",
                                          "phi3.attention.sliding_window",
                                          "tokenizer.ggml.scores",
                                          "tokenizer.ggml.token_type",
                                          "tokenizer.ggml.add_sep_token",
                                          "tokenizer.ggml.add_eos_token"};
  for (const auto& [key, expected] : theirs->metadata().entries()) {
    if (std::ranges::find(left_out, key) != left_out.end()) continue;
    if (ours.has_own_vocabulary && key.starts_with("tokenizer.")) continue;
    const format::MetadataValue* found = ours.file.metadata().find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(format::value_type_name(found->type), format::value_type_name(expected.type)) << key;
    EXPECT_EQ(found->count, expected.count) << key;
    EXPECT_TRUE(std::ranges::equal(found->bytes, expected.bytes))
        << key << ": " << format::describe_value(*found) << ", expected " << format::describe_value(expected);
  }
  for (const auto& [key, value] : ours.file.metadata().entries()) {
    EXPECT_THAT(std::string(key), ::testing::Not(HasSubstr(".folder."))) << "only Adze knows it";
  }
}

TEST_P(Convert, LogitsAreThoseOfTheFolder) {
  const Oracle oracle(GetParam().model);
  const Converted ours = convert(oracle, GetParam().folder);
  const auto folder = model::Model::load(ours.folder);
  ASSERT_TRUE(folder) << folder.error().message;
  auto parsed = format::GgufFile::parse(std::as_bytes(std::span(ours.bytes.data(), ours.bytes.size())), "converted");
  const auto file = model::Model::load(model::ModelSource{.store = format::WeightStore(std::move(*parsed))});
  ASSERT_TRUE(file) << file.error().message;
  for (const char* prompt : {"p7", "p70"}) {
    const auto expected = ops::ref::Interpreter(folder->plan()).run(oracle.prompt(prompt), 1).values;
    const auto found = ops::ref::Interpreter(file->plan()).run(oracle.prompt(prompt), 1).values;
    if (GetParam().exact_logits) {
      EXPECT_EQ(found, expected) << prompt;
    } else {
      EXPECT_LT(rel_rms(found, expected), 1e-5) << prompt;
    }
  }
}

TEST_P(Convert, TextBecomesTheSameTokens) {
  const Oracle oracle(GetParam().model);
  const Converted ours = convert(oracle, GetParam().folder);
  const auto folder = model::load_folder_tokenizer(ours.folder);
  const auto file = model::load_tokenizer(ours.file.metadata(), nullptr);
  ASSERT_TRUE(folder) << folder.error().message;
  ASSERT_TRUE(file) << file.error().message;
  for (const char* text : {"", "Hello, world!", "  spaces   and\n\nlines\t", "1234567 3.14", "naïve café — 你好 🙂",
                           "don't we'll I'M", "int main() { return 0; }"}) {
    EXPECT_EQ((*file)->encode(text, {.parse_special = true}).value(),
              (*folder)->encode(text, {.parse_special = true}).value())
        << text;
  }
}

std::string pair_name(const testing::TestParamInfo<Pair>& info) {
  std::string name = fmt::format("{}_{}", info.param.model, info.param.folder);
  std::ranges::replace_if(name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

// Orders of sums change with the order of value heads and of rotated pairs; factors of rope are float32 in a file.
INSTANTIATE_TEST_SUITE_P(All, Convert,
                         testing::Values(Pair{"llama-gqa-rope3", "HF", "BF16", false}, Pair{"qwen2-bias", "HF", "BF16"},
                                         Pair{"qwen3-dense", "HF", "BF16"}, Pair{"gemma2", "HF", "BF16"},
                                         Pair{"gemma3-text", "HF", "BF16"}, Pair{"gemma4-e2b", "HF_VLM", "BF16"},
                                         Pair{"gemma4-moe", "HF", "BF16"}, Pair{"qwen3-moe", "HF", "BF16"},
                                         Pair{"qwen3-next", "HF", "BF16"}, Pair{"qwen3_5-moe", "HF", "BF16", false},
                                         Pair{"gpt-oss", "HF_MXFP4", "MXFP4"}, Pair{"cohere2", "HF", "BF16"},
                                         Pair{"granite", "HF", "BF16"}, Pair{"ministral3", "HF", "BF16"},
                                         Pair{"olmo2", "HF", "BF16"}, Pair{"phi3-longrope", "HF", "BF16"}),
                         pair_name);

// Codes that GGUF does not have become floats: in float32 exactly the weights that the folder's codes stand for.
TEST(ConvertMlx, LogitsAreThoseOfTheFolder) {
  for (const char* name : {"llama-mlx64", "qwen3-dense"}) {
    const auto folder = oracle_folder(name) / "mlx-4bit";
    if (oracle_folder(name).empty() || !std::filesystem::exists(folder)) GTEST_SKIP() << "set ADZE_TEST_ORACLES";
    const auto model = model::Model::load(folder);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    const auto planned = convert::plan_conversion(folder, {.mix = quantise::find_mix("F32").value()});
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    const std::string bytes = planned->file.to_bytes();
    auto file = format::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "converted");
    const auto converted = model::Model::load(model::ModelSource{.store = format::WeightStore(std::move(*file))});
    ASSERT_TRUE(converted.has_value()) << converted.error().message;
    const std::vector<std::int32_t> prompt = Oracle(name).prompt("p7");
    EXPECT_LT(rel_rms(ops::ref::Interpreter(converted->plan()).run(prompt, 1).values,
                      ops::ref::Interpreter(model->plan()).run(prompt, 1).values),
              1e-5)
        << name;
    EXPECT_TRUE(planned->notes.empty());
    const auto again = convert::plan_conversion(folder, {.mix = quantise::find_mix("Q4_0").value()});
    ASSERT_EQ(again->notes.size(), 1u);
    EXPECT_NE(again->notes.front().find("rounded a second time"), std::string::npos) << again->notes.front();
  }
}

// The same with nothing but the repository's own files: a folder made of its oracle's GGUF.
TEST(ConvertHere, GivesTheFileThatTheFolderWasMadeOf) {
  const Oracle oracle("llama-gqa-rope3");
  const auto original = model::Model::load(oracle.gguf("BF16"));
  ASSERT_TRUE(original.has_value()) << original.error().message;
  const ModelFolder folder("adze_convert_here");
  folder.write_weights("model.safetensors", folder_tensors(*original));
  folder.write("config.json", R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 160,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 5, "vocab_size": 1280,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
    "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 256, "rope_type": "llama3"}})");
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "ignore_merges": true,
    "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}, "pre_tokenizer": {"type": "ByteLevel",
    "add_prefix_space": false}, "added_tokens": [{"id": 3, "content": "<3>", "special": true},
    {"id": 4, "content": "<4>", "special": true}, {"id": 5, "content": "<5>", "special": false}]})");
  folder.write("generation_config.json", R"({"eos_token_id": [3, 5, 4], "temperature": 0.6, "top_k": 20})");
  folder.write("chat_template.jinja", "{{ messages[0].content }}");

  for (const char* type : {"BF16", "Q8_0", "Q4_0"}) {
    const convert::WriteOptions options{.mix = quantise::find_mix(type).value(), .threads = 2};
    const auto planned = convert::plan_conversion(folder.path(), options);
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    ASSERT_TRUE(planned->file.write(folder.path() / "out.gguf"));
    const auto ours = format::GgufFile::open(folder.path() / "out.gguf");
    const auto theirs = format::GgufFile::open(oracle.gguf(type));
    ASSERT_TRUE(ours.has_value() && theirs.has_value());
    for (const format::GgufTensor& expected : theirs->tensors()) {
      const format::GgufTensor* found = ours->find_tensor(expected.view.name);
      ASSERT_NE(found, nullptr) << expected.view.name;
      // A mix spends more on the output than the oracle's script did.
      if (std::string_view(type) == "Q4_0" && std::string_view(expected.view.name) == "output.weight") continue;
      EXPECT_EQ(found->view.type, expected.view.type) << type << ' ' << expected.view.name;
      EXPECT_TRUE(std::ranges::equal(found->view.bytes, expected.view.bytes)) << type << ' ' << expected.view.name;
    }
    const format::Metadata& metadata = ours->metadata();
    EXPECT_EQ(metadata.get_i64("tokenizer.ggml.eos_token_id").value(), 3);
    EXPECT_EQ(metadata.get_i64("tokenizer.ggml.eot_token_id").value(), 5);
    EXPECT_EQ(metadata.get_i64("tokenizer.ggml.eom_token_id").value(), 4);
    EXPECT_EQ(metadata.get_integers("tokenizer.ggml.token_type").value().size(), 1280U);  // unused ones behind
    EXPECT_EQ(metadata.get_i64("general.sampling.top_k").value(), 20);
    EXPECT_FLOAT_EQ(metadata.get_f32("general.sampling.temp").value(), 0.6f);
    EXPECT_EQ(metadata.get_string("tokenizer.chat_template").value(), "{{ messages[0].content }}");
  }
}

// A rotation that GGUF cannot describe must not become another one in silence.
TEST(ConvertRefuses, ASettingThatGgufCannotSay) {
  const std::string why = missing_oracle({"gpt-oss", "HF_MXFP4"});
  if (!why.empty()) GTEST_SKIP() << why;
  const ModelFolder folder("adze_convert_ramp");
  for (const auto& file : std::filesystem::directory_iterator(Oracle("gpt-oss").hugging_face("HF_MXFP4")))
    std::filesystem::copy_file(file.path(), folder.path() / file.path().filename());
  std::string config = read_file(folder.path() / "config.json", 1 << 20).value();
  const std::size_t at = config.find("\"truncate\": false");
  ASSERT_NE(at, config.npos);
  folder.write("config.json", config.replace(at, 17, "\"truncate\": true"));
  const auto planned = convert::plan_conversion(folder.path(), {});
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error().code, ErrorCode::unsupported_feature);
  EXPECT_THAT(planned.error().message, HasSubstr("cannot say what config.json says about rope"));
}

TEST(ConvertRefuses, AFile) {
  const std::string why = missing_oracle({"llama-gqa-rope3", "BF16"});
  if (!why.empty()) GTEST_SKIP() << why;
  const auto planned = convert::plan_conversion(Oracle("llama-gqa-rope3").gguf("BF16"), {});
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(planned.error().message, HasSubstr("is a GGUF file already"));
  EXPECT_THAT(planned.error().hint, HasSubstr("adze quantize"));
}

}  // namespace
}  // namespace adze::test
