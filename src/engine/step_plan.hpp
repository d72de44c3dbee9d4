// Which rows the next forward computes, and who must give room for them: a pure function of what it is told. The rules
// and their order are in docs/design/0018.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_index.hpp"
#include "engine/request_state.hpp"

namespace adze::engine {

using RequestId = std::uint64_t;  // 1, 2, ... in the order of submission; never used again

// Pages of one group that a sequence has, for the question how many more it needs.
struct HeldPages {
  std::int64_t pages = 0;
  bool last_is_shared = false;  // the page that the next row is written to is copied first
  bool operator==(const HeldPages&) const = default;
};

using PageCounts = std::array<std::int64_t, cache::kGroups>;  // by cache::Group

// A request that has not ended, as the planner sees it.
struct RequestView {
  RequestId id = 0;
  RequestState state = RequestState::waiting;
  std::int64_t computed = 0;    // positions
  std::int64_t length = 0;      // tokens; length - computed are still to be computed, and 1 means that it decodes
  std::int64_t stop = 0;        // position behind which its next chunk may not go (a state is kept there)
  int draft = 0;                // tokens that may be verified behind the last one
  std::uint64_t last_rows = 0;  // the step in which it last had rows; 0: none yet
  std::array<HeldPages, cache::kGroups> held{};
  bool holds_slot = false;
  bool waits_for_sibling = false;  // its prompt is being computed for another one
  bool operator==(const RequestView&) const = default;
};

struct StepInput {
  std::span<const RequestView> requests;      // by priority, then arrival
  PageCounts obtainable{};                    // pages that nobody running holds
  std::array<bool, cache::kGroups> groups{};  // which the model has
  std::int32_t obtainable_slots = 0;
  bool needs_slots = false;
  int page_tokens = 64;
  std::int64_t window_pages = 0;  // what a sliding group needs of a prompt at the most
  int max_rows = 0;
  int max_running = 0;
  bool may_admit = true;  // not in a step that preempted somebody
};

struct PlannedRows {
  RequestId id = 0;
  int rows = 0;   // of its text
  int draft = 0;  // behind them
  bool operator==(const PlannedRows&) const = default;
};

// One request to preempt, or one to admit, and nothing else: then the question is put again, with what that changed. Or
// the rows to compute.
struct StepPlan {
  RequestId preempt = 0;
  RequestId admit = 0;
  std::vector<PlannedRows> rows;  // decoding requests first
  bool operator==(const StepPlan&) const = default;
};

StepPlan plan_step(const StepInput& input);

}  // namespace adze::engine
