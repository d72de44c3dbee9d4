#include "base/settings.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "base/file.hpp"
#include "base/suggest.hpp"

namespace adze {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const SettingRow& row(std::string_view name) { return *find_setting(name); }

class SettingsFileTest : public ::testing::Test {
 protected:
  SettingsFileTest() : path_(std::filesystem::temp_directory_path() / fmt::format("adze_settings_{}", ::getpid())) {}
  void TearDown() override { std::filesystem::remove(path_); }
  Status read(std::string_view text) {
    EXPECT_TRUE(write_file_atomic(path_, text));
    return builder_.read_file(path_, true);
  }
  std::filesystem::path path_;
  SettingsBuilder builder_;
};

TEST_F(SettingsFileTest, AKeyStandsThereOnce) {
  EXPECT_TRUE(read("stop = a\nstop = b\n"));  // a list grows
  EXPECT_EQ(builder_.settings().stop, (std::vector<std::string>{"a", "b"}));
  const Status twice = read("top_k = 1\n# and\ntop_k = 2\n");
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr(":3: top_k was set before, at "));
}

TEST(SettingRows, NamesFlagsAndVariablesAreUnique) {
  std::set<std::string_view> seen;
  for (const SettingRow& r : setting_rows()) {
    EXPECT_TRUE(seen.insert(r.name).second) << r.name;
    EXPECT_TRUE(seen.insert(r.flags).second) << r.flags;
    EXPECT_FALSE(r.help.empty()) << r.name;
    EXPECT_NE(r.flags.find("--"), std::string_view::npos) << r.name;
  }
}

TEST(SettingRows, DefaultsAreWithinTheirOwnRanges) {
  const Settings defaults;
  for (const SettingRow& r : setting_rows()) {
    const std::string text = format_setting(r, defaults);
    if (text.empty()) continue;
    SettingsBuilder builder;
    EXPECT_TRUE(builder.set(r, text, {SettingSource::file, "test"})) << r.name << " = " << text;
  }
}

TEST_F(SettingsFileTest, ReadsEveryKindOfValue) {
  ASSERT_TRUE(
      read("# a comment\n\nthreads = 3   # three\ntop_p=0.5\nsystem = \"say \\\"#1\\\"\\n\"\nmmap = false\n"
           "stop = \"a\"\nstop = b\n"));
  const Settings& s = builder_.settings();
  EXPECT_EQ(s.threads, 3);
  EXPECT_EQ(s.top_p, 0.5);
  EXPECT_EQ(s.system, "say \"#1\"\n");
  EXPECT_FALSE(s.mmap);
  EXPECT_THAT(s.stop, ElementsAre("a", "b"));
  EXPECT_EQ(builder_.origin(row("threads")).source, SettingSource::file);
  EXPECT_THAT(builder_.origin(row("threads")).where, HasSubstr(":3"));
  EXPECT_EQ(builder_.origin(row("context")).source, SettingSource::fallback);
}

TEST_F(SettingsFileTest, UnknownKeyIsAnErrorWithTheNearestOne) {
  const Status status = read("thread = 3\n");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("no setting 'thread'"));
  EXPECT_EQ(status.error().hint, "Did you mean 'threads'?");
}

TEST_F(SettingsFileTest, BadLinesNameTheLine) {
  for (const char* line :
       {"threads", "threads = many", "threads = -1", "threads = 1.5", "top_p = 1.5", "top_p = nan", "kv_type = q9",
        "mmap = perhaps", "system = \"open", "system = \"a\" b", "system = \"\\q\""}) {
    const Status status = read(std::string("# first\n") + line + "\n");
    ASSERT_FALSE(status) << line;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument) << line;
    EXPECT_THAT(status.error().message, HasSubstr(":2:")) << line;
    EXPECT_FALSE(status.error().hint.empty()) << line;
  }
}

TEST_F(SettingsFileTest, MissingFileMattersOnlyWhenAskedFor) {
  EXPECT_TRUE(builder_.read_file("no/such/file", false));
  EXPECT_FALSE(builder_.read_file("no/such/file", true));
}

TEST_F(SettingsFileTest, LaterSourcesWin) {
  ASSERT_TRUE(read("threads = 1\ncontext = 10\nstop = file\nhub_token = \"file\"\n"));
  ASSERT_TRUE(builder_.read_environment([](const char* name) -> const char* {
    if (std::strcmp(name, "ADZE_THREADS") == 0) return "2";
    if (std::strcmp(name, "HF_TOKEN") == 0) return "secret";
    if (std::strcmp(name, "ADZE_CTX") == 0) return "";
    return nullptr;
  }));
  ASSERT_TRUE(builder_.set(row("stop"), "one", {SettingSource::flag, "--stop"}));
  ASSERT_TRUE(builder_.set(row("stop"), "two", {SettingSource::flag, "--stop"}));
  EXPECT_EQ(builder_.settings().threads, 2);
  EXPECT_EQ(builder_.settings().context, 10);
  EXPECT_EQ(builder_.settings().hub_token, "secret");
  EXPECT_THAT(builder_.settings().stop, ElementsAre("one", "two"));
  EXPECT_EQ(builder_.origin(row("hub_token")).where, "HF_TOKEN");
}

TEST(Suggest, NearestName) {
  constexpr std::string_view kNames[] = {"run", "rm", "threads", "top_k"};
  EXPECT_EQ(nearest_name("rnu", kNames), "run");
  EXPECT_EQ(nearest_name("thraeds", kNames), "threads");
  EXPECT_EQ(nearest_name("topk", kNames), "top_k");
  EXPECT_EQ(nearest_name("perplexity", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(did_you_mean("thread", kNames), "Did you mean 'threads'?");
}

TEST(Settings, AnErrorNeverShowsASecret) {
  SettingsBuilder builder;
  const Status status = builder.set(row("threads"), "x", {SettingSource::environment, "ADZE_THREADS"});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("ADZE_THREADS: 'x'"));
  EXPECT_TRUE(row("hub_token").secret);
}

TEST(Settings, ConfigPathFollowsTheEnvironment) {
  const auto from_home = [](const char* name) -> const char* {
    return std::strcmp(name, "HOME") == 0 ? "/home/u" : nullptr;
  };
  EXPECT_EQ(default_config_path(from_home), "/home/u/.config/adze/config.toml");
  EXPECT_EQ(default_config_path([](const char*) -> const char* { return nullptr; }), "");
}

}  // namespace
}  // namespace adze
