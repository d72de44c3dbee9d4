#include "backend/cpu/thread_team.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/cpu/countdown.hpp"

namespace adze::cpu {
namespace {

TEST(ThreadTeam, EveryMemberRunsOnceAndBarriersOrderTheirWrites) {
  for (const int size : {1, 2, 3, 8}) {  // 8: more threads than cores
    ThreadTeam team(size);
    std::vector<int> values(static_cast<std::size_t>(size), 0);
    for (int round = 1; round <= 200; ++round) {
      std::vector<int> sums(static_cast<std::size_t>(size), 0);
      team.run([&](int member) {
        values[static_cast<std::size_t>(member)] = round * (member + 1);
        team.barrier();
        sums[static_cast<std::size_t>(member)] = std::accumulate(values.begin(), values.end(), 0);
        team.barrier();
      });
      for (const int sum : sums) ASSERT_EQ(sum, round * size * (size + 1) / 2);
    }
  }
}

// Members write pieces of a unit; whoever completes it sees all of them, and is one of them only.
TEST(Countdown, HasOneCompleterWhoSeesEverything) {
  constexpr int kUnits = 7, kWidth = 30;
  for (const int size : {1, 2, 3, 8}) {
    ThreadTeam team(size);
    std::vector<std::int32_t> counters(kUnits, 0);
    const Countdown countdown(counters.data());
    std::vector<int> values(kUnits * kWidth, 0), sums(kUnits, 0);
    for (int round = 1; round <= 200; ++round) {
      team.run([&](int member) {
        for (int i = 0; i < kUnits; ++i) {
          const int unit = (i + member) % kUnits;  // in another order on each member
          const Share share = share_of(kWidth, member, size);
          const auto first = values.begin() + unit * kWidth;
          std::fill(first + share.begin, first + share.end, round);
          if (!countdown.complete(static_cast<std::size_t>(unit), share.end - share.begin, kWidth)) continue;
          sums[static_cast<std::size_t>(unit)] += std::accumulate(first, first + kWidth, 0);
        }
        team.barrier();
      });
      for (int& sum : sums) {
        ASSERT_EQ(sum, round * kWidth);
        sum = 0;
      }
    }
  }
}

TEST(ThreadTeam, SleepsAndWakesUp) {
  ThreadTeam team(2);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long enough to be asleep
    int count[2] = {};
    team.run([&](int member) { count[member] = 1; });
    EXPECT_EQ(count[0] + count[1], 2);
  }
}

TEST(ThreadTeam, TwoTeamsLiveSideBySide) {
  ThreadTeam a(2), b(2);
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) b.run([](int) {});
  });
  for (int i = 0; i < 500; ++i) a.run([](int) {});
  other.join();
}

TEST(ThreadTeam, SharesCoverEverythingOnce) {
  for (const int count : {0, 1, 5, 96, 1000}) {
    for (const int members : {1, 2, 3, 7}) {
      int next = 0;
      for (int m = 0; m < members; ++m) {
        const Share share = share_of(count, m, members);
        EXPECT_EQ(share.begin, next);
        next = share.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace adze::cpu
