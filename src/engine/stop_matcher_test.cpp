#include "engine/stop_matcher.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/limits.hpp"

namespace adze::engine {
namespace {

struct Outcome {
  std::string text;
  std::string match;
  std::vector<std::string> pieces;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher = StopMatcher::create(stops).value();
  Outcome outcome;
  for (const std::string& piece : pieces) {
    std::string out;
    const bool stopped = matcher.feed(piece, out);
    outcome.text += out;
    outcome.pieces.push_back(out);
    if (stopped) {
      outcome.match = matcher.match();
      return outcome;
    }
  }
  matcher.flush(outcome.text);
  return outcome;
}

TEST(StopMatcher, StopsAcrossPieces) {
  const std::vector<std::string> pieces{"O", " P", " Q", " R", " S"};
  EXPECT_EQ(run({"O P Q"}, pieces).text, "");
  EXPECT_EQ(run({"O P Q"}, pieces).match, "O P Q");
  EXPECT_EQ(run({"P Q R"}, pieces).text, "O ");
  EXPECT_EQ(run({"P Q X"}, pieces).text, "O P Q R S");
  EXPECT_EQ(run({"P Q X"}, pieces).match, "");
  EXPECT_EQ(run({}, pieces).text, "O P Q R S");
}

TEST(StopMatcher, StopsInsideAPiece) {
  EXPECT_EQ(run({"\n"}, {"Sure", "?\n", "x"}).text, "Sure?");
  EXPECT_EQ(run({"\n\n"}, {"a\n", "\nb"}).text, "a");
}

TEST(StopMatcher, TheFirstToCompleteWins) {
  EXPECT_EQ(run({"ab", "abc"}, {"a", "bc"}).text, "");
  EXPECT_EQ(run({"ab", "abc"}, {"a", "bc"}).match, "ab");
  EXPECT_EQ(run({"bc", "abc"}, {"xabc"}).match, "abc");  // both complete at c: the longest
  EXPECT_EQ(run({"abcd", "bc"}, {"abcd"}).text, "a");    // bc completes before abcd
}

TEST(StopMatcher, GivesTextOutAsSoonAsItIsCertain) {
  const Outcome outcome = run({"end"}, {"the e", "n", "emy", " en"});
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"the ", "", "enemy", " "}));
  EXPECT_EQ(outcome.text, "the enemy en");
}

TEST(StopMatcher, RefusesBadStops) {
  EXPECT_EQ(StopMatcher::create({"a", ""}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(StopMatcher::create({"\xa9"}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(StopMatcher::create(std::vector<std::string>(20'000, "x")).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(StopMatcher::create({std::string(limits::kMaxStopBytes + 1, 'x')}).error().code,
            ErrorCode::invalid_argument);
  EXPECT_TRUE(StopMatcher::create(std::vector<std::string>(limits::kMaxStops, "x")));
}

// Against the definition, over random text of two letters cut at random places.
TEST(StopMatcher, EqualsItsDefinition) {
  std::mt19937 random(20240607);
  const auto word = [&random](std::size_t min, std::size_t max) {
    std::string s(std::uniform_int_distribution<std::size_t>(min, max)(random), 'a');
    for (char& c : s) c = static_cast<char>('a' + random() % 2);
    return s;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string text = word(0, 40);
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) stop = word(1, 7);
    std::string expected = text;
    std::string match;
    for (std::size_t end = 1; end <= text.size() && match.empty(); ++end) {
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop) && stop.size() > match.size()) match = stop;
      }
      if (!match.empty()) expected = text.substr(0, end - match.size());
    }
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = random() % 5;
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    const Outcome outcome = run(stops, pieces);
    EXPECT_EQ(outcome.text, expected) << text;
    EXPECT_EQ(outcome.match, match) << text;
  }
}

}  // namespace
}  // namespace adze::engine
