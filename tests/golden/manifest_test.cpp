// model-manifest.json: one that is right, and one for each way of disagreeing with the files.
#include "model/manifest.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "convert/synth.hpp"
#include "golden/oracle.hpp"
#include "model/model.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96,
  "head_dim": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 300,
  "tie_word_embeddings": true, "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32,
  "linear_value_head_dim": 32, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}})";

class Manifest : public testing::Test {
 protected:
  void SetUp() override {
    const auto planned = convert::plan_synthesis(kConfig, "test", 0, {.mix = quantise::find_mix("Q8_0").value()});
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    folder.write("model.gguf", planned->to_bytes());
    const auto model = model::Model::load(path);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    manifest = model::write_manifest(model->manifest_source()).value();
  }
  void write(const std::string& text) const { folder.write("model.gguf.manifest.json", text); }
  // The manifest with one piece of text changed.
  std::string with(std::string_view old, std::string_view by) const {
    std::string text = manifest;
    const std::size_t at = text.find(old);
    EXPECT_NE(at, text.npos) << old;
    if (at != text.npos) text.replace(at, old.size(), by);
    return text;
  }
  Error refusal(const std::string& text) const {
    write(text);
    const auto model = model::Model::load(path);
    EXPECT_FALSE(model.has_value()) << "loaded with a wrong manifest";
    return model ? Error{} : model.error();
  }

  ModelFolder folder{"adze_manifest"};
  std::filesystem::path path = folder.path() / "model.gguf";
  std::string manifest;
};

TEST_F(Manifest, ThatIsRightLoads) {
  write(manifest);
  const auto model = model::Model::load(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const Status checked = model::check_manifest_beside(model->manifest_source(), model::ManifestCheck::bytes);
  EXPECT_TRUE(checked) << checked.error().message;
}

TEST_F(Manifest, NamesWhatDisagrees) {
  struct Case {
    const char *old, *by, *field;
  };
  for (const Case& wrong : {
           Case{R"("hidden_size": 64)", R"("hidden_size": 65)", R"("constants.hidden_size" is 65)"},
           Case{R"("base": 10000000.0)", R"("base": 10000.0)", R"("constants.rope.base" is 10000)"},
           Case{R"("kind": "recurrent")", R"("kind": "full")", R"("layers[0].kind" is "full")"},
           Case{R"("architecture": "qwen35")", R"("architecture": "llama")", R"("architecture" is "llama")"},
           Case{R"("name": "model.gguf")", R"("name": "other.gguf")", R"("files[0].name")"},
           Case{R"("type": "Q8_0")", R"("type": "Q4_0")", "].type\" is \"Q4_0\""},
           Case{R"("role": "token_embd.weight")", R"("role": "output.weight")", ".role\""},
           Case{R"("offset": )", R"("offset": 1)", ".offset\" is 1"},
       }) {
    const Error error = refusal(with(wrong.old, wrong.by));
    EXPECT_EQ(error.code, ErrorCode::corrupt_file) << wrong.old;
    EXPECT_THAT(error.message, HasSubstr(wrong.field)) << wrong.old;
    EXPECT_THAT(error.message, HasSubstr("model.gguf.manifest.json: ")) << wrong.old;
  }
}

TEST_F(Manifest, FailsClosedOnUnknownAndMissingFields) {
  Error error = refusal(with(R"("hidden_size": 64)", R"("hidden_size": 64, "logit_offset": 2)"));
  EXPECT_THAT(error.message, HasSubstr(R"(the field "constants.logit_offset" is none that version 1.0 has)"));
  error = refusal(with(R"("schema")", R"("surprise": {}, "schema")"));
  EXPECT_THAT(error.message, HasSubstr(R"(the field "surprise")"));
  error = refusal(with(R"("context_length": 2048,)", ""));
  EXPECT_THAT(error.message, HasSubstr(R"(the field "constants.context_length" is missing)"));
}

TEST_F(Manifest, KnowsItsVersion) {
  Error error = refusal(with(R"("version": "1.0")", R"("version": "2.0")"));
  EXPECT_EQ(error.code, ErrorCode::unsupported_feature);
  EXPECT_THAT(error.message, HasSubstr(R"(its version is "2.0")"));
  for (const char* version : {R"("1.")", R"("1.x")", R"("1.0.0")", R"("1.-1")", R"("1.99999999999")", "1"}) {
    error = refusal(with(R"("version": "1.0")", fmt::format(R"("version": {})", version)));
    EXPECT_THAT(error.message, HasSubstr(fmt::format("its version is {},", version)));
  }
  error = refusal(with("adze.model-manifest", "another"));
  EXPECT_THAT(error.message, HasSubstr(R"("schema" is not)"));
  write(with(R"("version": "1.0")", R"("version": "1.7")"));
  EXPECT_TRUE(model::Model::load(path).has_value());
}

TEST_F(Manifest, DamagedJsonIsRefused) {
  EXPECT_EQ(refusal("{").code, ErrorCode::corrupt_file);
  EXPECT_EQ(refusal("[]").code, ErrorCode::corrupt_file);
  EXPECT_EQ(refusal(with(R"("schema")", R"("version": "1.0", "schema")")).code, ErrorCode::corrupt_file);  // twice
}

TEST_F(Manifest, AChangedByteIsFoundByItsDigest) {
  write(manifest);
  std::string bytes = read_file(path, 1 << 24).value();
  bytes[bytes.size() - 40] = static_cast<char>(bytes[bytes.size() - 40] ^ 1);
  folder.write("model.gguf", bytes);
  const auto model = model::Model::load(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;  // structure says nothing of bytes
  const Status checked = model::check_manifest_beside(model->manifest_source(), model::ManifestCheck::bytes);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr(".xxh3\" is "));
}

// Loading does not compute digests, and asks for them all the same.
TEST_F(Manifest, EveryTensorHasADigest) {
  const std::size_t at = manifest.find(R"("xxh3": ")");
  ASSERT_NE(at, manifest.npos);
  const std::string field = manifest.substr(at, std::string_view(R"("xxh3": "")").size() + 32);
  for (const char* damaged : {R"("xxh3": "")", R"("xxh3": true)", R"("xxh3": -1)", R"("xxh4": "0")"}) {
    EXPECT_THAT(refusal(with(field, damaged)).message, HasSubstr("xxh")) << damaged;
  }
}

TEST_F(Manifest, ALinkThatLeadsNowhereIsNoAbsentManifest) {
  std::filesystem::create_symlink("nowhere", folder.path() / "model.gguf.manifest.json");
  const auto model = model::Model::load(path);
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, HasSubstr("model.gguf.manifest.json"));
}

TEST_F(Manifest, AGrownFileIsFound) {
  write(manifest);
  folder.write("model.gguf", read_file(path, 1 << 24).value() + std::string(32, '\0'));
  const auto model = model::Model::load(path);
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, HasSubstr(R"("files[0].bytes" is )"));
}

TEST_F(Manifest, IsThatOfTheFilesWhateverTheOptions) {
  const auto model =
      model::Model::load(path, {.rope = {.scaling = "linear", .frequency_base = 500.0, .factor = 2.0}, .context = 100});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model::write_manifest(model->manifest_source()).value(), manifest);
}

TEST_F(Manifest, HasALimit) {
  write(manifest);
  std::filesystem::resize_file(folder.path() / "model.gguf.manifest.json", limits::kMaxManifestBytes + 1);
  const auto model = model::Model::load(path);
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::limit_exceeded);
}

// What is written for a model of any family lets it load.
class ManifestOf : public OracleTest {};

TEST_P(ManifestOf, LetsItsModelLoad) {
  const OracleRow& row = GetParam();
  const Oracle oracle(row.model);
  const bool is_folder = std::string_view(row.type).starts_with("HF");
  const std::filesystem::path original = is_folder ? oracle.hugging_face(row.type) : oracle.gguf(row.type);
  const ModelFolder folder(std::string("adze_manifest_") + row.model);
  if (is_folder) {
    std::filesystem::copy(original, folder.path(), std::filesystem::copy_options::recursive);
  } else {
    std::filesystem::copy(original, folder.path());
  }
  const std::filesystem::path path = is_folder ? folder.path() : folder.path() / original.filename();
  const auto model = model::Model::load(path, {.check_manifest = false});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto text = model::write_manifest(model->manifest_source());
  ASSERT_TRUE(text.has_value()) << text.error().message;
  folder.write(model::manifest_path(path).filename().string(), *text);
  const auto again = model::Model::load(path);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  const Status checked = model::check_manifest_beside(again->manifest_source(), model::ManifestCheck::bytes);
  EXPECT_TRUE(checked) << checked.error().message;
}

INSTANTIATE_TEST_SUITE_P(Families, ManifestOf,
                         testing::Values(OracleRow{"phi3-longrope", "BF16"}, OracleRow{"phi3-longrope", "HF"},
                                         OracleRow{"cohere2", "HF"}, OracleRow{"ministral3", "BF16"},
                                         OracleRow{"gpt-oss", "HF_MXFP4"}, OracleRow{"qwen3-moe", "BF16"},
                                         OracleRow{"gemma4-e2b", "BF16"}, OracleRow{"gemma3-text", "HF"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
