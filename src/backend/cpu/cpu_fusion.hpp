// Which runs of a plan's steps one dispatch covers, and why. A dispatch is what the threads do between two barriers:
// one piece of work that they share (the lead), and whatever can ride along with it because somebody has all of its
// inputs before the barrier. Decided from the steps alone, by a table of rules (docs/design/0006).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/plan.hpp"

namespace adze::cpu {

// Up to so many rows, what needs whole rows of a product is done by the thread that finishes last, which saves a
// barrier; more rows are worth meeting for, so that all threads share them.
inline constexpr int kRowsAlone = 2;
// Up to so many rows, attention splits the context over threads, and whoever completes some heads (of a projection, of
// a row's attention) takes them further; more rows keep every thread busy by themselves, and are met for and shared.
inline constexpr int kSplitRows = 8;

// What the threads share of a stage.
enum class Sharing : std::uint8_t { rows, columns, heads, attention, states };

// A step, or the part of one that is shared in one way.
struct Stage {
  enum class Part : std::uint8_t { whole, product, choose, gather, gate_up, down, norm };
  int step = 0;
  Part part = Part::whole;
  Sharing sharing = Sharing::rows;
};

struct Dispatch {
  Stage lead;
  std::optional<Stage> heads;  // of the lead's columns or states, taken further by whoever completes them
  std::vector<Stage> rows;     // for whole rows of what came before, in order
  int few_rows = 0;            // up to so many, a stage rides along without a meeting, by its rule; 0: no rule asks
  std::string reason;          // why the stages stand together, for people; empty when there is one only
  // False: the threads go on with the next dispatch without meeting (cpu_side_by_side.hpp).
  bool meets = true;
  int lane = 0;  // its place among the dispatches that the threads do not meet between: each counts by itself
  int first_step() const { return lead.step; }
  int last_step() const { return !rows.empty() ? rows.back().step : heads ? heads->step : lead.step; }
  // Whether the rows' stages begin when the last thread has finished its part of the lead.
  bool rows_wait() const { return !rows.empty() && lead.sharing != Sharing::rows; }
  // Counters of those who have completed the columns of all rows, and all rows.
  std::size_t columns_counter() const { return 2 * static_cast<std::size_t>(lane); }
  std::size_t rows_counter() const { return columns_counter() + 1; }
  // Barriers that the threads pass for a batch of so many rows, the one at the end included.
  int barriers(int batch_rows) const;
};

// Covers all steps in order. Not `fused`: every stage is a dispatch of its own, which gives the same bits.
std::vector<Dispatch> cover(const ops::Plan& plan, bool fused);

// "Route + Experts (gather)"
std::string dispatch_name(const ops::Plan& plan, const Dispatch& dispatch);

}  // namespace adze::cpu
