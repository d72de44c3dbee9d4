// How Route and Experts steps are shared among threads. The rows of a batch are gathered by expert, so that an expert's
// weights are read once for all its rows, and only those of experts that have rows. Gate and up: the work is (expert,
// 16 output rows), weighed by the expert's rows and shared out in one sweep over all of them. Down: a member takes
// columns of the output through all experts, so that what they return for a row can be added up without a barrier.
//
// No bit of a row depends on the others that chose the same expert: the products give one row and many the same bits, a
// gathered row is rounded to int8 by itself, and what a row's experts return is added in the order of its slots.
#pragma once

#include "backend/cpu/cpu_matmul.hpp"
#include "backend/cpu/cpu_rounding.hpp"
#include "backend/cpu/thread_team.hpp"

namespace adze::cpu {

class Mixture {
 public:
  using Products = std::vector<BoundMatmul>;  // of the step
  Mixture(const KernelTable& table, const Scratch& scratch, const Rounding& rounding, ThreadTeam& team)
      : table_(table), scratch_(scratch), mixture_(scratch.experts), rounding_(rounding), team_(team) {}

  // The stages of both steps, called by every member of the team; they return the columns that the member completed.
  Columns route(const Products& products, const ActivationBuffer& in, int rows, int member);
  void choose(const ops::Route& step, const ActivationBuffer& out, int row) const;
  // By every member, with a barrier inside: all rows must be routed before any is gathered. `last`: this one is the
  // last to have completed its rows so far. Or by a member that has all rows to itself: member 0 of 1, and the last.
  void gather(const ops::Experts& step, const Products& products, const ActivationBuffer& in,
              const ActivationBuffer& routes, int rows, bool last, Crew crew);
  void gate_up(const ops::Experts& step, const Products& products, int member);
  Columns down(const ops::Experts& step, const Products& products, const ActivationBuffer& routes,
               const ActivationBuffer& out, int rows, int member);

  // What the last run() of a step left for observers: f(expert, buffer, first row, rows) for each expert that had rows,
  // with what its down product read.
  template <class F>
  void for_activated(const ops::Experts& step, F f) const {
    for (int e = 0; e < expert_count(step); ++e) {
      ActivationBuffer rows = mixture_.activated;
      rows.width = e == step.routed.count ? step.shared.width : step.routed.width;
      if (row_count(e) > 0) f(e, rows, first_row(e), row_count(e));
    }
  }

 private:
  // The three products of one expert's network, out of a step's: which rows of their maps are this expert's.
  struct Network {
    const BoundMatmul *gate, *up, *down;
    const ops::Experts::Weights* weights;
    int index;  // of the expert in these weights
  };
  static Network network(const ops::Experts& step, const Products& products, int expert);
  static int expert_count(const ops::Experts& step) { return step.routed.count + step.shared.count; }
  int first_row(int expert) const { return mixture_.starts[expert]; }
  int row_count(int expert) const { return mixture_.starts[expert + 1] - mixture_.starts[expert]; }
  std::byte* panel(int member, int which) const {
    return scratch_.members[static_cast<std::size_t>(member)].panels[which];
  }

  void choose(const ops::Route& step, float* logits, float* out) const;
  void group(const ops::Experts& step, const ActivationBuffer& routes, int rows);
  void gate_up(const ops::Experts& step, const Network& network, int expert, int group_begin, int group_end,
               int member);
  void gate_apart(const ops::Experts& step, int expert, const Network& network, const MatmulArgs& gate, MatmulArgs up,
                  int group_begin, int group_end);
  void down(const Network& network, int expert, int group_begin, int group_end, int member);
  void combine(const ops::Experts& step, const ActivationBuffer& routes, const ActivationBuffer& out, int rows,
               Columns columns) const;

  // Calls f(network, expert, group_begin, group_end) for this member's share of gate and up.
  template <class F>
  void for_groups(const ops::Experts& step, const Products& products, int member, F f);

  // An expert's gathered rows as a buffer of their own, for a product that reads `width` columns.
  ActivationBuffer rows_of(const ActivationBuffer& gathered, int expert, const BoundMatmul& reader) const;
  // A product of an expert's rows with weight_rows rows of the map.
  MatmulArgs product_args(const BoundMatmul& m, std::int64_t weight_row, int weight_rows, const float* bias,
                          const ActivationBuffer& in, int expert, float* out, std::size_t ld_out,
                          std::byte* panel) const;

  const KernelTable& table_;
  const Scratch& scratch_;
  const ExpertScratch& mixture_;
  const Rounding& rounding_;
  ThreadTeam& team_;
};

}  // namespace adze::cpu
