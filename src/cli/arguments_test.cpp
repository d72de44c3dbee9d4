#include "cli/arguments.hpp"

#include <gmock/gmock.h>

#include "cli/utf8.hpp"

namespace adze::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Positional kPositionals[] = {{"MODEL", "the model"}, {"PROMPT", "the words", false, true}};
constexpr Option kOptions[] = {{"-f,--file", "FILE", "a file", ""},
                               {"--json", "", "as JSON", ""},
                               {"--lora", "FILE", "", "adapters are not supported"}};
constexpr SettingGroup kGroups[] = {SettingGroup::engine, SettingGroup::ending};
constexpr Command kCommand{.name = "try",
                           .summary = "a command",
                           .description = {},
                           .positionals = kPositionals,
                           .options = kOptions,
                           .settings = kGroups,
                           .examples = {},
                           .run = nullptr};

Result<Arguments> parse(std::vector<const char*> words) { return parse_arguments(kCommand, words); }

TEST(Arguments, OptionsPositionalsAndSettings) {
  const auto arguments =
      parse({"m", "-f", "a", "why", "--json", "is", "--file=b", "-t", "3", "--no-mmap", "--stop", "x", "--stop", "y"});
  ASSERT_TRUE(arguments) << arguments.error().message;
  EXPECT_EQ(arguments->positional(0), "m");
  EXPECT_EQ(arguments->rest(1), "why is");
  EXPECT_EQ(arguments->rest(3), std::nullopt);
  EXPECT_TRUE(arguments->has("json"));
  EXPECT_EQ(arguments->value("file"), "b");
  EXPECT_THAT(arguments->values("file"), ElementsAre("a", "b"));
  SettingsBuilder builder;
  ASSERT_TRUE(apply_flags(*arguments, builder));
  EXPECT_EQ(builder.settings().threads, 3);
  EXPECT_FALSE(builder.settings().mmap);
  EXPECT_THAT(builder.settings().stop, ElementsAre("x", "y"));
  EXPECT_EQ(builder.origin(*find_setting("threads")).where, "--threads");
}

TEST(Arguments, ADashIsAWordAndTwoEndTheFlags) {
  const auto arguments = parse({"m", "-", "--", "--json"});
  ASSERT_TRUE(arguments) << arguments.error().message;
  EXPECT_EQ(arguments->rest(1), "- --json");
  EXPECT_FALSE(arguments->has("json"));
}

TEST(Arguments, NegativeNumbersAreValues) {
  const auto arguments = parse({"m", "--max-tokens", "-1"});
  ASSERT_TRUE(arguments) << arguments.error().message;
  SettingsBuilder builder;
  const Status status = apply_flags(*arguments, builder);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("--max-tokens: '-1'"));
}

TEST(Arguments, ErrorsNameTheWord) {
  auto unknown = parse({"m", "--thread", "3"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(unknown.error().message, HasSubstr("no flag '--thread'"));
  EXPECT_EQ(unknown.error().hint, "Did you mean '--threads'?");

  auto foreign = parse({"m", "--top-k", "3"});  // a setting of a group that the command does not take
  ASSERT_FALSE(foreign);

  auto missing = parse({});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("needs MODEL"));

  auto no_value = parse({"m", "--file"});
  ASSERT_FALSE(no_value);

  auto refused = parse({"m", "--lora", "x"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_feature);
  EXPECT_THAT(refused.error().message, HasSubstr("adapters"));
}

TEST(Arguments, HelpNeedsNothingElse) {
  const auto arguments = parse({"--help"});
  ASSERT_TRUE(arguments);
  EXPECT_TRUE(arguments->wants_help());
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(first_bad_utf8("plain é ∀ 😀"), std::nullopt);
  EXPECT_EQ(first_bad_utf8(std::string_view("\0", 1)), std::nullopt);
  EXPECT_EQ(first_bad_utf8("ab\xff"), 2u);
  EXPECT_EQ(first_bad_utf8("\xc0\xaf"), 0u);          // overlong
  EXPECT_EQ(first_bad_utf8("a\xed\xa0\x80"), 1u);     // surrogate
  EXPECT_EQ(first_bad_utf8("\xf4\x90\x80\x80"), 0u);  // past the end of Unicode
  EXPECT_EQ(first_bad_utf8("a\xe2\x88"), 1u);         // cut short
}

}  // namespace
}  // namespace adze::cli
