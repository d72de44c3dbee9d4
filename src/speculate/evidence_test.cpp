#include "speculate/evidence.hpp"

#include <gtest/gtest.h>

namespace adze::speculate {
namespace {

TEST(Evidence, KindsAreNamedByWhatSpeaksForAToken) {
  EXPECT_EQ(kind_of_context(2, 1), Kind::two_once);
  EXPECT_EQ(kind_of_context(3, 2), Kind::three_twice);
  EXPECT_EQ(kind_of_context(4, 3), Kind::four_often);
  EXPECT_EQ(kind_of_context(4, 60'000), Kind::four_often);
  EXPECT_EQ(kind_of_copy(5), Kind::copy_short);
  EXPECT_EQ(kind_of_copy(15), Kind::copy_middle);
  EXPECT_EQ(kind_of_copy(16), Kind::copy_long);
  EXPECT_EQ(static_cast<std::size_t>(Kind::copy_long) + 1, kKinds);
}

TEST(Evidence, MoreOfItIsTrustedMoreFromTheStart) {
  const Evidence evidence;
  for (const int context : {2, 3, 4}) {
    for (const int count : {1, 2}) {
      EXPECT_LT(evidence.trust(kind_of_context(context, count)), evidence.trust(kind_of_context(context, count + 1)));
    }
  }
  EXPECT_LT(evidence.trust(kind_of_copy(5)), evidence.trust(kind_of_copy(8)));
  EXPECT_LT(evidence.trust(kind_of_copy(8)), evidence.trust(kind_of_copy(16)));
}

// What was wrong for long is right again soon, and one kind says nothing about another.
TEST(Evidence, LearnsAndForgets) {
  Evidence evidence;
  const double other = evidence.trust(Kind::four_often);
  for (int i = 0; i < 1000; ++i) evidence.used(Kind::two_often, false);
  EXPECT_LT(evidence.trust(Kind::two_often), 0.01);
  for (int i = 0; i < 10; ++i) evidence.used(Kind::two_often, true);
  EXPECT_GT(evidence.trust(Kind::two_often), 0.5);
  EXPECT_EQ(evidence.trust(Kind::four_often), other);
}

TEST(Evidence, NoKindIsSilentForEver) {
  Evidence evidence;
  EXPECT_FALSE(evidence.due(Kind::resumed));
  int waited = 0;
  while (!evidence.due(Kind::resumed) && waited < 100) {
    evidence.passed_over(Kind::resumed);
    ++waited;
  }
  EXPECT_LE(waited, 12);
  evidence.used(Kind::resumed, false);
  EXPECT_FALSE(evidence.due(Kind::resumed));
}

}  // namespace
}  // namespace adze::speculate
