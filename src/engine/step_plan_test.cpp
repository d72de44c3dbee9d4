#include "engine/step_plan.hpp"

#include <gtest/gtest.h>

namespace adze::engine {
namespace {

RequestView waits(RequestId id, std::int64_t length) { return {.id = id, .length = length, .stop = length}; }
RequestView computes(RequestId id, std::int64_t computed, std::int64_t length) {
  RequestView view{.id = id, .state = RequestState::running, .computed = computed, .length = length, .stop = length};
  view.held[0].pages = (computed + 63) / 64;
  return view;
}
RequestView decodes(RequestId id, std::int64_t length, int draft = 0, std::uint64_t last_rows = 0) {
  RequestView view = computes(id, length - 1, length);
  view.draft = draft;
  view.last_rows = last_rows;
  return view;
}

StepInput input(std::span<const RequestView> requests, std::int64_t free_pages = 100, int rows = 16) {
  return {.requests = requests,
          .obtainable = {free_pages, 0},
          .groups = {true, false},
          .page_tokens = 64,
          .max_rows = rows,
          .max_running = 8};
}

TEST(StepPlan, DecodesFirstThenPromptsInOrder) {
  const RequestView requests[] = {computes(1, 10, 100), decodes(2, 50), computes(3, 0, 5), decodes(4, 7)};
  const StepPlan plan = plan_step(input(requests));
  EXPECT_EQ(plan.preempt, 0u);
  EXPECT_EQ(plan.rows, (std::vector<PlannedRows>{{2, 1, 0}, {4, 1, 0}, {1, 14, 0}}));
}

TEST(StepPlan, DraftsTakeWhatPromptsLeave) {
  const RequestView alone[] = {decodes(1, 50, 10), decodes(2, 50, 10)};
  EXPECT_EQ(plan_step(input(alone)).rows, (std::vector<PlannedRows>{{1, 1, 10}, {2, 1, 4}}));
  const RequestView beside[] = {decodes(1, 50, 16), computes(2, 0, 100)};
  EXPECT_EQ(plan_step(input(beside)).rows, (std::vector<PlannedRows>{{1, 1, 11}, {2, 4, 0}}));
  // Behind the edge of a page there is none for more than two drafted rows.
  const RequestView edge[] = {decodes(1, 62, 5)};
  EXPECT_EQ(plan_step(input(edge, 0)).rows, (std::vector<PlannedRows>{{1, 1, 2}}));
}

TEST(StepPlan, PromptsGetAQuarterAndDecodersTakeTurns) {
  std::vector<RequestView> requests;
  for (RequestId id = 1; id <= 6; ++id) requests.push_back(decodes(id, 10, 0, id <= 3 ? 7 : 6));
  requests.push_back(waits(9, 100));
  EXPECT_EQ(plan_step(input(requests, 100, 4)).admit, 9u);
  requests.back().state = RequestState::running;
  EXPECT_EQ(plan_step(input(requests, 100, 4)).rows,
            (std::vector<PlannedRows>{{4, 1, 0}, {5, 1, 0}, {6, 1, 0}, {9, 1, 0}}));
}

TEST(StepPlan, AdmitsTheFirstWhileItsWholePromptFits) {
  const RequestView requests[] = {decodes(1, 10), waits(2, 300), waits(3, 10)};
  EXPECT_EQ(plan_step(input(requests, 6)).admit, 2u);  // five pages, and one for what 1 says next
  EXPECT_EQ(plan_step(input(requests, 5)).admit, 0u);  // and 3 does not overtake 2
  EXPECT_EQ(plan_step(input(requests, 5)).rows, (std::vector<PlannedRows>{{1, 1, 0}}));
  const RequestView first[] = {waits(2, 300)};
  EXPECT_EQ(plan_step(input(first, 2)).admit, 2u);  // nobody will give more room
  StepInput few = input(requests);
  few.max_running = 1;
  EXPECT_EQ(plan_step(few).admit, 0u);
  StepInput states = input(requests);
  states.needs_slots = true;
  EXPECT_EQ(plan_step(states).admit, 0u);
  states.obtainable_slots = 1;
  EXPECT_EQ(plan_step(states).admit, 2u);
  states.may_admit = false;
  EXPECT_EQ(plan_step(states).admit, 0u);
  const RequestView full[] = {computes(1, 0, 100), waits(2, 5)};
  EXPECT_EQ(plan_step(input(full)).admit, 0u);  // 1 takes all rows
}

TEST(StepPlan, TheNewestPromptGivesRoomThenTheNewestAnswer) {
  const RequestView requests[] = {decodes(1, 65), computes(2, 10, 100), decodes(3, 20), computes(4, 3, 9)};
  EXPECT_EQ(plan_step(input(requests, 0)).preempt, 4u);
  EXPECT_EQ(plan_step(input(std::span(requests).first(3), 0)).preempt, 2u);
  const RequestView answers[] = {decodes(1, 65), decodes(3, 20)};
  EXPECT_EQ(plan_step(input(answers, 0)).preempt, 3u);
  const RequestView oldest[] = {decodes(1, 65)};
  EXPECT_EQ(plan_step(input(oldest, 0)), StepPlan{});
  // The oldest computes its prompt and nobody else has rows.
  const RequestView prompts[] = {computes(1, 64, 100), computes(2, 64, 100)};
  EXPECT_EQ(plan_step(input(prompts, 0)).preempt, 2u);
}

TEST(StepPlan, ASharedPageThatIsWrittenCostsOne) {
  RequestView view = decodes(1, 30);
  view.held[0].last_is_shared = true;
  EXPECT_EQ(plan_step(input({&view, 1}, 0)), StepPlan{});
  EXPECT_EQ(plan_step(input({&view, 1}, 1)).rows, (std::vector<PlannedRows>{{1, 1, 0}}));
}

TEST(StepPlan, ChunksEndWhereAStateIsKept) {
  RequestView view = computes(1, 10, 100);
  view.stop = 13;
  EXPECT_EQ(plan_step(input({&view, 1})).rows, (std::vector<PlannedRows>{{1, 3, 0}}));
}

TEST(RequestState, OnlyTheseMoves) {
  constexpr RequestState kAll[] = {RequestState::waiting,  RequestState::running,   RequestState::preempted,
                                   RequestState::finished, RequestState::cancelled, RequestState::failed};
  int moves = 0;
  for (const RequestState from : kAll) {
    for (const RequestState to : kAll) moves += may_move(from, to) ? 1 : 0;
    EXPECT_FALSE(may_move(from, from));
    EXPECT_FALSE(ended(from) && may_move(from, RequestState::running));
  }
  EXPECT_EQ(moves, 4 + 4 + 4);
}

}  // namespace
}  // namespace adze::engine
