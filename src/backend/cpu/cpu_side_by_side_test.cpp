#include "backend/cpu/cpu_side_by_side.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace adze::cpu {
namespace {

using Names = std::vector<std::string>;

// Plans of steps without weights: who goes where follows from buffers and layers alone.
class SideBySide : public testing::Test {
 protected:
  ops::BufferId buffer() {
    plan_.buffers.push_back({fmt::format("b{}", plan_.buffers.size()), 32});
    uses_.push_back({.width = 32, .stride = 32});
    return static_cast<ops::BufferId>(plan_.buffers.size() - 1);
  }
  template <class S>
  void add(S step) {
    plan_.steps.emplace_back(step);
    plan_.step_layers.push_back(0);
  }
  void project(ops::BufferId in, ops::BufferId out) { add(ops::Project{.parts = {}, .in = in, .out = out}); }
  void add_product(ops::BufferId in, ops::BufferId out) { add(ops::ProjectAdd{.in = in, .out = out}); }
  void gated(ops::BufferId in, ops::BufferId out) { add(ops::GatedPair{.in = in, .out = out}); }
  void norm(ops::BufferId in, ops::BufferId out) { add(ops::Norm{.norm = {}, .in = in, .out = out}); }
  void attend(int layer, ops::BufferId in, ops::BufferId out) {
    add(ops::Attend{.kv_layer = layer, .heads = 1, .kv_heads = 1, .head_size = 32, .in = in, .out = out});
  }

  // A line for each group: its dispatches' first steps.
  Names groups(std::size_t border) const {
    const std::vector<Dispatch> dispatches = cover(plan_, true);
    Names names;
    std::string group;
    for (const Dispatch& d : put_side_by_side(plan_, uses_, dispatches, std::min(border, dispatches.size()))) {
      EXPECT_EQ(d.lane, static_cast<int>(std::ranges::count(group, ' ')));
      group += fmt::format("{} ", d.first_step());
      if (!d.meets) continue;
      group.pop_back();
      names.push_back(group);
      group.clear();
    }
    EXPECT_EQ(group, "") << "the last one meets";
    return names;
  }
  Names groups() const { return groups(1000); }

  ops::Plan plan_;
  std::vector<BufferUse> uses_;
};

TEST_F(SideBySide, WhatReadsTheSameGoesTogether) {
  const auto x = buffer(), a = buffer(), b = buffer(), c = buffer();
  project(x, a);
  project(x, b);
  project(x, c);
  EXPECT_EQ(groups(), (Names{"0 1 2"}));
}

TEST_F(SideBySide, WhatReadsAResultComesAfterIt) {
  const auto x = buffer(), a = buffer(), b = buffer();
  project(x, a);
  project(a, b);
  EXPECT_EQ(groups(), (Names{"0", "1"}));
}

TEST_F(SideBySide, NobodyWritesWhatTheOtherStillReads) {
  const auto x = buffer(), a = buffer(), b = buffer();
  project(x, a);
  project(b, x);
  EXPECT_EQ(groups(), (Names{"0", "1"}));
}

TEST_F(SideBySide, NobodyWritesWhatTheOtherWrites) {
  const auto x = buffer(), y = buffer(), a = buffer();
  project(x, a);
  project(y, a);
  EXPECT_EQ(groups(), (Names{"0", "1"}));
}

TEST_F(SideBySide, MovesForwardPastWhatItDoesNotNeed) {
  const auto x = buffer(), a = buffer(), b = buffer(), c = buffer(), d = buffer();
  project(x, a);
  project(a, b);
  project(b, c);
  gated(x, d);
  EXPECT_EQ(groups(), (Names{"0 3", "1", "2"}));
}

TEST_F(SideBySide, TwoChainsGoHandInHand) {
  const auto x = buffer(), a = buffer(), b = buffer(), c = buffer(), d = buffer();
  project(x, a);
  project(a, b);
  gated(x, c);
  project(c, d);
  EXPECT_EQ(groups(), (Names{"0 2", "1 3"}));
}

TEST_F(SideBySide, NothingMovesAcrossTheBorder) {
  const auto x = buffer(), a = buffer(), b = buffer(), c = buffer();
  project(x, a);
  project(x, b);
  project(x, c);
  EXPECT_EQ(groups(1), (Names{"0", "1 2"}));
  EXPECT_EQ(groups(0), (Names{"0 1 2"}));
}

TEST_F(SideBySide, KeysAreStoredBeforeTheyAreRead) {
  const auto x = buffer(), q = buffer(), y = buffer();
  add(ops::AttentionPrep{.kv_layer = 0, .heads = 1, .kv_heads = 1, .head_size = 32, .in = x, .out = q});
  attend(0, y, buffer());
  EXPECT_EQ(groups(), (Names{"0", "1"}));
}

TEST_F(SideBySide, StatesGoOnInOrder) {
  const auto a = buffer(), b = buffer(), c = buffer(), d = buffer();
  add(ops::DeltaScan{.state_layer = 0, .heads = {}, .in = a, .out = b});
  add(ops::DeltaPrep{.state_layer = 0, .heads = {}, .in = c, .out = d});
  EXPECT_EQ(groups(), (Names{"0", "1"}));
}

// Two of them would count the same heads.
TEST_F(SideBySide, ScratchThatThereIsOnceHasOneUser) {
  const auto x = buffer(), y = buffer();
  attend(0, x, buffer());
  attend(1, y, buffer());
  gated(x, buffer());
  gated(y, buffer());
  EXPECT_EQ(groups(), (Names{"0 2", "1 3"}));
}

TEST_F(SideBySide, StagesOfOneStepStayInOrder) {
  const auto x = buffer();
  add(ops::Head{.norm = {}, .in = x});
  EXPECT_EQ(groups(), (Names{"0", "0"}));
}

// Each thread adds to columns of its own, and who norms the rows waits for all of both.
TEST_F(SideBySide, WhatIsAddedToOneBufferIsAddedInOrder) {
  const auto h = buffer(), a = buffer(), b = buffer(), x = buffer();
  add_product(a, h);
  add_product(b, h);
  norm(h, x);
  EXPECT_EQ(groups(), (Names{"0 1"}));
  uses_[static_cast<std::size_t>(h)].int8_32 = true;  // its blocks are rounded by who completes them
  EXPECT_EQ(groups(), (Names{"0", "1"}));
}

TEST_F(SideBySide, WhatNormsTheSumComesBetween) {
  const auto h = buffer(), a = buffer(), b = buffer(), x = buffer();
  add_product(a, h);
  norm(h, x);
  add_product(b, h);
  EXPECT_EQ(groups(), (Names{"0", "2"}));
}

TEST_F(SideBySide, RowsBehindASumDoNotWriteWhatItReads) {
  const auto h = buffer(), a = buffer(), b = buffer();
  add_product(a, h);
  add_product(b, h);
  norm(h, a);
  EXPECT_EQ(groups(), (Names{"0", "1"}));
}

}  // namespace
}  // namespace adze::cpu
