#include "cli/help.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <sstream>

namespace adze::cli {
namespace {

using ::testing::HasSubstr;

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Help, EveryCommandIsDescribed) {
  const std::string program = program_help();
  std::set<std::string_view> names;
  for (const Command* command : commands()) {
    EXPECT_TRUE(names.insert(command->name).second) << command->name;
    EXPECT_THAT(program, HasSubstr(std::string(command->summary)));
    EXPECT_NE(command->run, nullptr) << command->name;
    const std::string help = command_help(*command);
    EXPECT_THAT(help, HasSubstr("usage: adze " + std::string(command->name)));
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

// A flag means one thing within a command.
TEST(Help, FlagsAreUniqueWithinACommand) {
  for (const Command* command : commands()) {
    std::set<std::string> flags{"-h", "--help", "--config"};
    const auto add = [&](std::string_view list) {
      std::istringstream words{std::string(list)};
      for (std::string flag; std::getline(words, flag, ',');) {
        EXPECT_TRUE(flags.insert(flag).second) << command->name << " " << flag;
      }
    };
    for (const Option& option : command->options) add(option.flags);
    for (const SettingRow& row : setting_rows()) {
      if (takes_setting(*command, row)) add(row.flags);
    }
  }
}

TEST(Help, ManPageAndCompletionsNameEveryCommand) {
  const std::string man = man_page();
  for (const Command* command : commands()) {
    EXPECT_THAT(man, HasSubstr(".SS \"adze " + std::string(command->name) + "\""));
    for (const char* shell : {"bash", "zsh", "fish"}) {
      EXPECT_THAT(*completion_script(shell), HasSubstr(std::string(command->name)));
    }
  }
  EXPECT_FALSE(completion_script("csh"));
}

// The pages in docs/ are what the program prints: `adze config --markdown` and `--exit-codes` renew them.
TEST(Help, DocumentsAreUpToDate) {
  const std::string docs = std::string(ADZE_TEST_DATA) + "/../../docs/";
  EXPECT_EQ(read(docs + "settings.md"), settings_markdown());
  EXPECT_EQ(read(docs + "exit-codes.md"), exit_codes_markdown());
}

}  // namespace
}  // namespace adze::cli
