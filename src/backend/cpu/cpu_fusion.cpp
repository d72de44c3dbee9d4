#include "backend/cpu/cpu_fusion.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "backend/cpu/kernel_table.hpp"
#include "base/check.hpp"

namespace adze::cpu {
namespace {

using Part = Stage::Part;

// The stages of a step, in order.
struct StagesOf {
  int step;
  using Stages = std::vector<Stage>;
  Stages one(Sharing sharing) const { return {{step, Part::whole, sharing}}; }

  Stages operator()(const ops::Embed&) const { return one(Sharing::rows); }
  Stages operator()(const ops::Norm&) const { return one(Sharing::rows); }
  Stages operator()(const ops::ResidualNorm&) const { return one(Sharing::rows); }
  Stages operator()(const ops::Project&) const { return one(Sharing::columns); }
  Stages operator()(const ops::AttentionPrep& s) const {
    return one(s.norm_all_heads ? Sharing::rows : Sharing::heads);
  }
  Stages operator()(const ops::Attend&) const { return one(Sharing::attention); }
  Stages operator()(const ops::ProjectAdd&) const { return one(Sharing::columns); }
  Stages operator()(const ops::GatedPair&) const { return one(Sharing::columns); }
  Stages operator()(const ops::Route&) const {
    return {{step, Part::product, Sharing::columns}, {step, Part::choose, Sharing::rows}};
  }
  Stages operator()(const ops::Experts&) const {
    return {{step, Part::gather, Sharing::rows},
            {step, Part::gate_up, Sharing::columns},
            {step, Part::down, Sharing::columns}};
  }
  Stages operator()(const ops::DeltaPrep&) const { return one(Sharing::heads); }
  Stages operator()(const ops::DeltaScan&) const { return one(Sharing::states); }
  Stages operator()(const ops::DeltaOut&) const { return one(Sharing::heads); }
  Stages operator()(const ops::Head&) const {
    return {{step, Part::norm, Sharing::rows}, {step, Part::product, Sharing::columns}};
  }
};

// What may ride along with what. `running` is how the dispatch's work is shared by the time the stage begins.
struct Rule {
  Sharing running, next;
  bool reads_it;  // the stage must read what the lead writes
  int few_rows;   // more are met for; 0: any number
  std::string_view reason;
};
constexpr std::array<Rule, 4> kRules{{
    {Sharing::rows, Sharing::rows, false, 0, "a thread goes on with its rows"},
    {Sharing::columns, Sharing::rows, false, kRowsAlone,
     "the last thread to finish its columns goes on with up to {} rows, all share more"},
    {Sharing::columns, Sharing::heads, true, kSplitRows,
     "whoever completes a head's columns goes on with it in up to {} rows, all share more"},
    {Sharing::states, Sharing::heads, true, 0, "whoever completes a head goes on with it"},
}};

ops::BufferId output(const ops::Step& step) {
  const ops::Access access = ops::step_access(step);
  return access.writes.empty() ? -1 : access.writes.front();
}

const Rule* find_rule(const ops::Plan& plan, const Dispatch& dispatch, const Stage& next) {
  const Sharing running = !dispatch.rows.empty() ? Sharing::rows
                          : dispatch.heads       ? Sharing::heads
                                                 : dispatch.lead.sharing;
  const auto reads_it = [&] {
    const ops::Access access = ops::step_access(plan.steps[static_cast<std::size_t>(next.step)]);
    const ops::BufferId written = output(plan.steps[static_cast<std::size_t>(dispatch.lead.step)]);
    return !access.reads.empty() && access.reads.front() == written;
  };
  const auto* rule = std::ranges::find_if(kRules, [&](const Rule& r) {
    return r.running == running && r.next == next.sharing && (!r.reads_it || reads_it());
  });
  return rule == kRules.end() ? nullptr : rule;
}

std::string_view part_name(Part part) {
  switch (part) {
    case Part::whole: return "";
    case Part::product: return "product";
    case Part::choose: return "choose";
    case Part::gather: return "gather";
    case Part::gate_up: return "gate, up";
    case Part::down: return "down";
    case Part::norm: return "norm";
  }
  ADZE_CHECK(false, "part {}", static_cast<int>(part));
}

}  // namespace

int Dispatch::barriers(int batch_rows) const {
  const bool few = batch_rows <= few_rows, alone = rows_wait() && few;
  const auto is_gather = [](const Stage& stage) { return stage.part == Part::gather; };
  const auto gathers = std::ranges::count_if(rows, is_gather) + (is_gather(lead) ? 1 : 0);
  const bool waits = rows_wait() || (heads && lead.sharing == Sharing::columns);
  const bool inside = (waits && !few) || (lead.sharing == Sharing::attention && batch_rows > kSplitRows);
  return (meets ? 1 : 0) + (inside ? 1 : 0) + (alone ? 0 : static_cast<int>(gathers));
}

std::vector<Dispatch> cover(const ops::Plan& plan, bool fused) {
  std::vector<Dispatch> dispatches;
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) {
    for (const Stage& stage : std::visit(StagesOf{i}, plan.steps[static_cast<std::size_t>(i)])) {
      const Rule* rule = fused && !dispatches.empty() ? find_rule(plan, dispatches.back(), stage) : nullptr;
      if (rule == nullptr) {
        dispatches.push_back({.lead = stage, .heads = {}, .rows = {}, .reason = {}});
        continue;
      }
      Dispatch& dispatch = dispatches.back();
      if (stage.sharing == Sharing::heads) {
        dispatch.heads = stage;
      } else {
        dispatch.rows.push_back(stage);
      }
      dispatch.few_rows = std::max(dispatch.few_rows, rule->few_rows);  // one of its rules has some
      const std::string reason = fmt::format(fmt::runtime(rule->reason), rule->few_rows);
      if (dispatch.reason.find(reason) != std::string::npos) continue;
      dispatch.reason += (dispatch.reason.empty() ? "" : "; ") + reason;
    }
  }
  return dispatches;
}

std::string dispatch_name(const ops::Plan& plan, const Dispatch& dispatch) {
  std::vector<Stage> stages{dispatch.lead};
  if (dispatch.heads) stages.push_back(*dispatch.heads);
  stages.insert(stages.end(), dispatch.rows.begin(), dispatch.rows.end());
  std::string name;
  for (std::size_t i = 0; i < stages.size();) {
    const int step = stages[i].step;
    std::string parts;
    for (; i < stages.size() && stages[i].step == step; ++i) {
      const std::string_view part = part_name(stages[i].part);
      if (!part.empty()) parts += (parts.empty() ? "" : ", ") + std::string(part);
    }
    name += (name.empty() ? "" : " + ") + std::string(ops::step_name(plan.steps[static_cast<std::size_t>(step)]));
    if (!parts.empty()) name += fmt::format(" ({})", parts);
  }
  return name;
}

}  // namespace adze::cpu
