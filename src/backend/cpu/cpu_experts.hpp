// How Route and Experts steps are shared among threads. The rows of a batch are gathered by expert, so that an expert's
// weights are read once for all its rows, and only those of experts that have rows. The work is (expert, 16 output
// rows), weighed by the expert's rows and shared out in one sweep over all of them.
//
// No bit of a row depends on the others that chose the same expert: the products give one row and many the same bits, a
// gathered row is rounded to int8 by itself, and what a row's experts return is added in the order of its slots.
#pragma once

#include "backend/cpu/cpu_matmul.hpp"
#include "backend/cpu/thread_team.hpp"

namespace adze::cpu {

class Mixture {
 public:
  Mixture(const KernelTable& table, const Scratch& scratch, ThreadTeam& team)
      : table_(table), scratch_(scratch), mixture_(scratch.experts), team_(team) {}

  // Called by every member. The output is complete after the next barrier.
  void route(const ops::Route& step, const Dispatch& dispatch, const ActivationBuffer& in, const ActivationBuffer& out,
             int rows, int member);
  void run(const ops::Experts& step, const Dispatch& dispatch, const ActivationBuffer& in,
           const ActivationBuffer& routes, const ActivationBuffer& out, int rows, int member);

 private:
  // The three products of one expert's network, out of a dispatch's: which rows of their maps are this expert's.
  struct Network {
    const BoundMatmul *gate, *up, *down;
    const ops::Experts::Weights* weights;
    int index;  // of the expert in these weights
  };
  static Network network(const ops::Experts& step, const Dispatch& dispatch, int expert);
  static int expert_count(const ops::Experts& step) { return step.routed.count + step.shared.count; }
  int first_row(int expert) const { return mixture_.starts[expert]; }
  int row_count(int expert) const { return mixture_.starts[expert + 1] - mixture_.starts[expert]; }
  std::byte* panel(int member, int which) const {
    return scratch_.members[static_cast<std::size_t>(member)].panels[which];
  }

  void choose(const ops::Route& step, float* logits, float* out) const;
  void group(const ops::Experts& step, const ActivationBuffer& routes, int rows);
  void gather(const ops::Experts& step, const Dispatch& dispatch, const ActivationBuffer& in, int member);
  void gate_up(const ops::Experts& step, const Network& network, int expert, int group_begin, int group_end,
               int member);
  void quantise_activated(const ops::Experts& step, const Dispatch& dispatch, int member);
  void down(const Network& network, int expert, int group_begin, int group_end, int member);
  void combine(const ops::Experts& step, const ActivationBuffer& routes, const ActivationBuffer& out, int rows,
               int member);

  // Calls f(gathered row, expert) for this member's gathered rows.
  template <class F>
  void for_gathered(const ops::Experts& step, int member, F f);
  // Calls f(network, expert, group_begin, group_end) for this member's share of the products.
  template <class F>
  void for_groups(const ops::Experts& step, const Dispatch& dispatch, const BoundMatmul* Network::* product, int member,
                  F f);

  MatmulArgs product_args(const BoundMatmul& m, std::int64_t weight_row, int weight_rows, const float* bias,
                          const ActivationBuffer& in, int expert, float* out, std::size_t ld_out,
                          std::byte* panel) const;
  void quantise(const BoundMatmul& reader, const ActivationBuffer& to, const float* x, int gathered, int expert);

  const KernelTable& table_;
  const Scratch& scratch_;
  const ExpertScratch& mixture_;
  ThreadTeam& team_;
};

}  // namespace adze::cpu
