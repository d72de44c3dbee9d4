#include "tune/profile.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"

namespace adze::tune {
namespace {

using backend::Knob;
using backend::Regime;

Profile example() {
  return {.subject = {"A processor", "avx2", 8, "0.1.0, g++", "0123", "auto, kv f16"},
          .model = "a model \"of names\"",
          .long_context = 2048,
          .choices = {{Regime::one_long, Knob::prefetch, "GatedPair q4_0 64x256", 4096, 1.0625},
                      {Regime::many, Knob::threads, "", 4, 1.5}},
          .gains = {{Regime::many, 12.5, 8.25}},
          .costs = {{1, 2.0, 3.0}, {2, 2.5, 3.5}, {8, 4.0, 0.0}}};
}

class ProfileFile : public testing::Test {
 protected:
  std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("adze_profile_") + testing::UnitTest::GetInstance()->current_test_info()->name());
  void SetUp() override { std::filesystem::remove_all(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
};

TEST_F(ProfileFile, IsReadAsItWasWritten) {
  const Profile profile = example();
  const auto path = profile_path(directory_ / "deep", profile.subject);
  ASSERT_TRUE(write_profile(path, profile));
  const auto read = read_profile(path, profile.subject);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, profile);
}

TEST_F(ProfileFile, HasANameForEachSubject) {
  const Subject subject = example().subject;
  const auto path = profile_path(directory_, subject);
  for (int field = 0; field < 6; ++field) {
    Subject other = subject;
    std::string* const texts[] = {&other.processor, &other.kernel_set, &other.build, &other.weights, &other.settings};
    if (field == 5) {
      ++other.cpus;
    } else {
      *texts[field] += 'x';
    }
    EXPECT_NE(profile_path(directory_, other), path) << field;
  }
}

TEST_F(ProfileFile, IsOnlyForItsSubject) {
  const Profile profile = example();
  const auto path = directory_ / "profile.json";
  ASSERT_TRUE(write_profile(path, profile));
  Subject other = profile.subject;
  other.processor = "Another";
  const auto foreign = read_profile(path, other);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, ErrorCode::unsupported_feature);
  EXPECT_NE(foreign.error().message.find("for another processor 'A processor', and this is 'Another'"),
            std::string::npos)
      << foreign.error().message;
  other = profile.subject;
  other.weights = "4567";
  EXPECT_NE(read_profile(path, other).error().message.find("another model"), std::string::npos);
  EXPECT_EQ(read_profile(directory_ / "none.json", other).error().code, ErrorCode::not_found);
}

TEST_F(ProfileFile, IsRefusedWhereItIsDamaged) {
  const std::string good = to_json(example());
  // Cut anywhere, it is no JSON.
  for (std::size_t size = 0; size + 3 < good.size(); size += 7) {
    EXPECT_FALSE(parse_profile(std::string_view(good).substr(0, size))) << size;
  }
  struct Case {
    const char *from, *to, *says;
  };
  for (const Case& c : {Case{"\"adze_profile\": 1", "\"adze_profile\": 2", "profiles of version 2 are not known"},
                        Case{"\"adze_profile\": 1", "\"adze_profile\": \"one\"", "'adze_profile' is not a number"},
                        Case{"\"one_long\"", "\"sometimes\"", "'regime' is not a word that this version knows"},
                        Case{"\"prefetch\"", "7", "'knob' is not a text"},
                        Case{"\"value\": 4096", "\"value\": -1", "'value' is not a number from 0 to 1048576"},
                        Case{"\"rows\": 2", "\"rows\": 1", "the costs do not ascend by rows"},
                        Case{"\"choices\": [", "\"choises\": [", "'choices' is not a list"},
                        Case{"\"cpus\": 8", "\"cpus\": 1e99", "'cpus' is not a number from 1"}}) {
    std::string text = good;
    const std::size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string_view(c.from).size(), c.to);
    const auto parsed = parse_profile(text);
    ASSERT_FALSE(parsed) << c.to;
    EXPECT_NE(parsed.error().message.find(c.says), std::string::npos) << parsed.error().message;
  }
  EXPECT_FALSE(parse_profile("[]"));
  EXPECT_FALSE(parse_profile("{}"));
}

}  // namespace
}  // namespace adze::tune
