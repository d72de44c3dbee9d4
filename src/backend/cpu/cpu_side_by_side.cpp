#include "backend/cpu/cpu_side_by_side.hpp"

#include <algorithm>
#include <variant>

#include "ops/independence.hpp"

namespace adze::cpu {
namespace {

std::vector<int> steps_of(const Dispatch& dispatch) {
  std::vector<int> steps{dispatch.lead.step};
  if (dispatch.heads) steps.push_back(dispatch.heads->step);
  for (const Stage& stage : dispatch.rows) steps.push_back(stage.step);
  return steps;
}

// Scratch that there is once, whoever uses it.
struct Shared {
  bool heads = false;    // the counters of heads, and what attention leaves of them
  bool spare = false;    // where the second product of a gated pair goes
  bool mixture = false;  // a mixture's logits and gathered rows
  bool meets(const Shared& other) const {
    return (heads && other.heads) || (spare && other.spare) || (mixture && other.mixture);
  }
};

class Grouping {
 public:
  Grouping(const ops::Plan& plan, std::span<const BufferUse> buffers) : plan_(plan), buffers_(buffers) {}

  void add(const Dispatch& dispatch) {
    std::size_t at = groups_.size();
    for (; at > 0; --at) {  // to the last group with something that must come before
      const std::vector<Dispatch>& group = groups_[at - 1];
      if (std::ranges::all_of(group, [&](const Dispatch& d) { return independent(d, dispatch); })) continue;
      const auto goes_before = [&](const Dispatch& d) { return independent(d, dispatch) || adds_behind(d, dispatch); };
      if (std::ranges::all_of(group, goes_before)) --at;
      break;
    }
    while (at < groups_.size() && shares_scratch(groups_[at], dispatch)) ++at;
    if (at == groups_.size()) groups_.emplace_back();
    groups_[at].push_back(dispatch);
  }

  void append_to(std::vector<Dispatch>& out) {
    for (std::vector<Dispatch>& group : groups_) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        group[i].lane = static_cast<int>(i);
        group[i].meets = i + 1 == group.size();
        out.push_back(std::move(group[i]));
      }
    }
  }

 private:
  const ops::Step& step(int index) const { return plan_.steps[static_cast<std::size_t>(index)]; }

  bool independent(const Dispatch& a, const Dispatch& b) const {
    for (const int x : steps_of(a)) {
      for (const int y : steps_of(b)) {
        if (x == y || !ops::independent(step(x), step(y))) return false;
      }
    }
    return true;
  }

  // Two products that are added to one buffer: a thread has the same columns of both, and adds them in order. Not where
  // the buffer is rounded: who completes a block would be counted twice.
  bool adds_behind(const Dispatch& a, const Dispatch& b) const {
    const auto* first = std::get_if<ops::ProjectAdd>(&step(a.lead.step));
    const auto* second = std::get_if<ops::ProjectAdd>(&step(b.lead.step));
    if (first == nullptr || second == nullptr || first->out != second->out || !second->add) return false;
    const BufferUse& out = buffers_[static_cast<std::size_t>(first->out)];
    if (out.int8_32 || out.int8_256 || second->in == first->out || !a.rows.empty()) return false;
    // What rides behind the second begins when all threads are through with it, and so with the first.
    return std::ranges::none_of(b.rows, [&](const Stage& stage) {
      const std::vector<ops::BufferId> writes = ops::step_access(step(stage.step)).writes;
      return std::ranges::find(writes, first->in) != writes.end();
    });
  }

  Shared shared(const Dispatch& dispatch) const {
    Shared used;
    used.heads =
        dispatch.heads || dispatch.lead.sharing == Sharing::attention || dispatch.lead.sharing == Sharing::states;
    for (const int index : steps_of(dispatch)) {
      used.spare |= std::holds_alternative<ops::GatedPair>(step(index));
      used.mixture |=
          std::holds_alternative<ops::Route>(step(index)) || std::holds_alternative<ops::Experts>(step(index));
    }
    return used;
  }
  bool shares_scratch(const std::vector<Dispatch>& group, const Dispatch& dispatch) const {
    return std::ranges::any_of(group, [&](const Dispatch& d) { return shared(d).meets(shared(dispatch)); });
  }

  const ops::Plan& plan_;
  const std::span<const BufferUse> buffers_;
  std::vector<std::vector<Dispatch>> groups_;
};

}  // namespace

std::vector<Dispatch> put_side_by_side(const ops::Plan& plan, std::span<const BufferUse> buffers,
                                       std::span<const Dispatch> dispatches, std::size_t border) {
  std::vector<Dispatch> out;
  out.reserve(dispatches.size());
  for (const auto part : {dispatches.first(border), dispatches.subspan(border)}) {
    Grouping grouping(plan, buffers);
    for (const Dispatch& dispatch : part) grouping.add(dispatch);
    grouping.append_to(out);
  }
  return out;
}

}  // namespace adze::cpu
