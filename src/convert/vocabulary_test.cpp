// Every vector of the tokenizer oracles, through tokenizer.json and GGUF's words and back.
#include "convert/vocabulary.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "format/gguf.hpp"
#include "model/vocabulary.hpp"
#include "text/tokenizer_vectors.hpp"

namespace adze::convert {
namespace {

using text::vectors::check_all;
using text::vectors::data_dir;
using text::vectors::load_spec;

class ThereAndBack : public testing::TestWithParam<const char*> {};

TEST_P(ThereAndBack, GivesTheSameIds) {
  const std::string name = GetParam();
  const auto folder = data_dir() / "synthetic";
  const text::TokenizerSpec spec = load_spec(folder / (name + ".tokenizer.json"));
  format::GgufWriter writer;
  const auto added = add_vocabulary(spec, std::ssize(spec.tokens) + 3, name, writer);
  ASSERT_TRUE(added) << added.error().message;
  const std::string bytes = writer.to_bytes();
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "vocabulary");
  ASSERT_TRUE(file) << file.error().message;
  const auto tokenizer = model::load_tokenizer(file->metadata(), nullptr);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  check_all(*tokenizer, folder / (name + ".vectors.json"));
}

INSTANTIATE_TEST_SUITE_P(All, ThereAndBack,
                         testing::Values("deepseek-coder", "deepseek-v3", "gpt-4o", "gpt2", "llama-bpe", "qwen2",
                                         "qwen35", "smollm", "tekken", "gemma3", "gemma4"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Vocabulary, MoreTokensThanRowsAreRefused) {
  const text::TokenizerSpec spec = load_spec(data_dir() / "synthetic" / "gpt2.tokenizer.json");
  format::GgufWriter writer;
  const auto added = add_vocabulary(spec, 10, "llama", writer);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(added.error().message, ::testing::HasSubstr("but the model's embedding only 10 rows"));
}

// SentencePiece would merge what the list does not: "ab" + "b" and "a" + "bb" both make text that is a token.
TEST(Vocabulary, MergesThatScoresWouldNotGiveAreRefused) {
  const auto add = [](std::string_view vocabulary, std::string_view merges) {
    const auto spec = text::spec_from_tokenizer_json(fmt::format(
        R"({{"model": {{"type": "BPE", "byte_fallback": true, "fuse_unk": true, "vocab": {{{}}}, "merges": [{}]}},
             "normalizer": {{"type": "Replace", "pattern": {{"String": " "}}, "content": "\u2581"}},
             "added_tokens": []}})",
        vocabulary, merges));
    EXPECT_TRUE(spec) << spec.error().message;
    format::GgufWriter writer;
    return add_vocabulary(*spec, std::ssize(spec->tokens), "gemma3", writer);
  };
  const auto refused = add(R"("a": 0, "b": 1, "ab": 2, "bb": 3)", R"("b b")");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_feature);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("never merges \"a b\""));
  EXPECT_FALSE(add(R"("a": 0, "bb": 1, "b": 2, "xa": 3)", R"("b b")"));  // x is no token, yet it is text
  EXPECT_FALSE(add(R"("a": 0, "b": 1, "ab": 2, "abb": 3, "bb": 4)", R"("a b", "ab b", "b b")"));
  EXPECT_TRUE(add(R"("a": 0, "b": 1, "ab": 2, "bb": 3)", R"("b b", "a b")"));
  EXPECT_TRUE(add(R"("a": 0, "b": 1, "ab": 2, "abb": 3, "bb": 4)", R"("a b", "ab b", "a bb", "b b")"));
}

TEST(Vocabulary, TokensThatEndAnAnswerWithoutAKeyAreGiven) {
  text::TokenizerSpec spec = load_spec(data_dir() / "synthetic" / "gpt2.tokenizer.json");
  spec.eos = 5;
  spec.eot.reset();
  spec.end_of_generation = {5, 6, 7, 8};
  format::GgufWriter writer;
  const auto added = add_vocabulary(spec, std::ssize(spec.tokens), "llama", writer);
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_THAT(*added, ::testing::ElementsAre(spec.tokens[8]));
}

TEST(Vocabulary, APatternWithoutANameIsRefused) {
  text::TokenizerSpec spec = load_spec(data_dir() / "synthetic" / "gpt2.tokenizer.json");
  spec.stages = {{.pattern = "[a-z]+"}};
  format::GgufWriter writer;
  const auto added = add_vocabulary(spec, std::ssize(spec.tokens), "llama", writer);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::unsupported_feature);
  EXPECT_THAT(added.error().message, ::testing::HasSubstr("[a-z]+"));
}

}  // namespace
}  // namespace adze::convert
