#include "text/pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/pretokenizer.hpp"

namespace adze::text {
namespace {

// What `pattern` matches at the start of `text`; "-" for no match.
std::string match(std::string_view pattern, std::string_view text) {
  const auto compiled = Pattern::compile(pattern);
  if (!compiled) return "refused: " + compiled.error().message;
  Pattern::Budget budget{1'000'000};
  Pattern::Scratch scratch;
  const auto end = compiled->match(text, 0, budget, scratch);
  return end ? std::string(text.substr(0, *end)) : "-";
}

TEST(Pattern, LiteralsAndAlternatives) {
  EXPECT_EQ(match("ab|a", "abc"), "ab");
  EXPECT_EQ(match("a|ab", "abc"), "a");  // the first that matches, not the longest
  EXPECT_EQ(match("x|", "abc"), "");
  EXPECT_EQ(match("é+", "ééa"), "éé");
  EXPECT_EQ(match(R"(\$\x41\u0042\x{43})", "$ABC"), "$ABC");
  EXPECT_EQ(match(".", "\n"), "-");
}

TEST(Pattern, LoopsGiveBack) {
  EXPECT_EQ(match("a*ab", "aaab"), "aaab");
  EXPECT_EQ(match("a{2,3}a", "aaa"), "aaa");
  EXPECT_EQ(match("a{2}", "aaa"), "aa");
  EXPECT_EQ(match("a{,2}b", "aab"), "aab");
  EXPECT_EQ(match("a++a", "aaa"), "-");
  EXPECT_EQ(match("(?:ab)*a", "ababab"), "ababa");
  EXPECT_EQ(match("(?:ab){1,2}", "ababab"), "abab");
  EXPECT_EQ(match(R"(\s+(?!\S))", "   x"), "  ");
  EXPECT_EQ(match(R"(\s+(?!\S))", "   "), "   ");
  EXPECT_EQ(match(R"(a(?=b))", "ab"), "a");
  EXPECT_EQ(match("日*日本", "日日日本"), "日日日本");  // whole code points
}

TEST(Pattern, Classes) {
  EXPECT_EQ(match("[a-c]+", "abcd"), "abc");
  EXPECT_EQ(match("[^a-c]+", "xyzé日a"), "xyzé日");
  EXPECT_EQ(match(R"([\]\-x]+)", "x-]y"), "x-]");
  EXPECT_EQ(match("[a-]+", "a-b"), "a-");
  EXPECT_EQ(match("[a[0-9]]+", "a12b"), "a12");
  EXPECT_EQ(match(R"([^\s\p{L}]+)", "12!a"), "12!");
  EXPECT_EQ(match(R"([\S]+)", "ab c"), "ab");
  EXPECT_EQ(match(R"(\p{Lu}\p{Ll}+)", "Éclair"), "Éclair");
  EXPECT_EQ(match(R"(\P{L}+)", "12a"), "12");
  EXPECT_EQ(match(R"(\p{^L}+)", "12a"), "12");
  EXPECT_EQ(match(R"(\w+)", "añ_9-"), "añ_9");
  EXPECT_EQ(match(R"(\d+)", "1٣x"), "1٣");
}

TEST(Pattern, CaseIsIgnoredWithUnicodesThirdForms) {
  EXPECT_EQ(match("(?i:'s)", "'S"), "'S");
  EXPECT_EQ(match("(?i:'s)", "'ſ"), "'ſ");
  EXPECT_EQ(match("(?i:[k-l]+)m", "KlK\xE2\x84\xAAm"), "KlK\xE2\x84\xAAm");  // U+212A, the Kelvin sign
  EXPECT_EQ(match("(?i:a)b", "AB"), "-");                                    // only inside the group
}

TEST(Pattern, WhatItDoesNotKnowIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"^a", "an anchor"},         {"a+?", "a lazy quantifier"}, {"(?<=a)b", "a special group"},
      {"(a", "unclosed group"},    {"a)", "unmatched"},          {"[a", "unclosed class"},
      {R"(\p{Han})", "Han"},       {"[a&&b]", "intersection"},   {"[[:alpha:]]", "POSIX"},
      {R"(\b)", "unknown escape"}, {"(?:a*)*", "may be empty"},  {"(?!ab)c", "more than one"},
      {"a{3,2}", "{m,n}"},         {"(?i:é)", "beyond ASCII"},   {"*", "stray quantifier"},
      {"\xFF", "not UTF-8"},       {"[z-a]", "malformed range"}, {R"(\)", "lone backslash"}};
  for (const auto& [pattern, says] : cases) EXPECT_THAT(match(pattern, ""), testing::HasSubstr(says)) << pattern;
  EXPECT_THAT(match("(?:(?:(?:abc){99}){99}){99}", ""), testing::HasSubstr("instructions"));
  EXPECT_THAT(match(std::string(500, '(') + std::string(500, ')'), ""), testing::HasSubstr("too deep"));
}

TEST(Pattern, StopsWhenTheBudgetIsSpent) {
  // Exponential for a backtracking matcher.
  const auto pattern =
      Pattern::compile("(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)b").value();
  Pattern::Budget budget{500};
  Pattern::Scratch scratch;
  EXPECT_FALSE(pattern.match(std::string(20, 'a'), 0, budget, scratch));
  EXPECT_EQ(budget.steps, 0u);
}

std::vector<std::string_view> split(const std::vector<SplitStage>& stages, std::string_view text) {
  Pattern::Budget budget{1'000'000};
  std::vector<std::string_view> pieces;
  EXPECT_TRUE(PreTokenizer::create(stages).value().split(text, budget, pieces));
  return pieces;
}

TEST(PreTokenizer, Cuts) {
  using testing::ElementsAre;
  using Cut = SplitStage::Cut;
  EXPECT_THAT(split({}, "a b"), ElementsAre("a b"));
  EXPECT_THAT(split({{.pattern = "[0-9]"}}, "a12b"), ElementsAre("a", "1", "2", "b"));
  EXPECT_THAT(split({{.pattern = "[0-9]", .cut = Cut::gaps}}, "a12b"), ElementsAre("a", "b"));
  EXPECT_THAT(split({{.pattern = "[0-9]+", .cut = Cut::gaps, .invert = true}}, "a12b"), ElementsAre("12"));
  EXPECT_THAT(split({{.pattern = " ", .cut = Cut::merge_with_previous}}, " a  b"), ElementsAre(" ", "a ", " ", "b"));
  EXPECT_THAT(split({{.pattern = "[0-9]"}, {.pattern = "a"}}, "aa1a"), ElementsAre("a", "a", "1", "a"));
}

// Released GGUF files of the families that run name their pre-tokenizer in these words too.
TEST(PreTokenizer, NamesThatMeanTheSameSplit) {
  constexpr std::pair<const char*, const char*> kSame[] = {
      {"dbrx", "smaug-bpe"},    {"refact", "smollm"},    {"olmo", "gpt-2"},  {"falcon3", "llama-bpe"},
      {"pixtral", "llama-bpe"}, {"starcoder", "smollm"}, {"megrez", "qwen2"}};
  for (const auto& [name, as] : kSame) {
    const auto one = named_pre_tokenizer(name), other = named_pre_tokenizer(as);
    ASSERT_TRUE(one && other) << name;
    EXPECT_EQ(one->ignore_merges, other->ignore_merges) << name;
    ASSERT_EQ(one->stages.size(), other->stages.size()) << name;
    for (std::size_t i = 0; i < one->stages.size(); ++i) EXPECT_EQ(one->stages[i].pattern, other->stages[i].pattern);
  }
}

TEST(PreTokenizer, UnknownNamesAreRefusedWithTheKnownOnes) {
  const auto named = named_pre_tokenizer("no-such");
  ASSERT_FALSE(named);
  EXPECT_THAT(named.error().message, testing::HasSubstr("no-such"));
  EXPECT_THAT(named.error().hint, testing::HasSubstr("llama-bpe"));
}

}  // namespace
}  // namespace adze::text
