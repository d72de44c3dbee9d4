#include "ops/ref/interpreter.hpp"

#include <algorithm>
#include <numeric>
#include <variant>

#include "base/check.hpp"
#include "base/half.hpp"

namespace adze::ops::ref {
namespace {

void append(Rows& stored, const Rows& added, KvRounding rounding) {
  const std::size_t first = stored.values.size();
  stored.values.insert(stored.values.end(), added.values.begin(), added.values.end());
  stored.count += added.count;
  stored.width = added.width;
  switch (rounding) {
    case KvRounding::none: return;
    case KvRounding::f16:
      for (std::size_t i = first; i < stored.values.size(); ++i) {
        stored.values[i] = f16_to_f32(f32_to_f16(stored.values[i]));
      }
      return;
  }
}

}  // namespace

// One pass over the steps: the buffers of this pass and the step being run.
struct Interpreter::Visitor {
  Interpreter& self;
  std::span<const std::int32_t> tokens;
  int wanted;
  const Observer& observer;
  std::vector<std::int32_t> positions;
  std::vector<Rows> buffers;
  Rows logits;
  int step_index = 0;

  Rows& at(BufferId id) {
    ADZE_CHECK(id >= 0 && static_cast<std::size_t>(id) < buffers.size(), "buffer {} in step {}", id, step_index);
    return buffers[static_cast<std::size_t>(id)];
  }
  KvHistory& history(int layer) {
    ADZE_CHECK(layer >= 0 && static_cast<std::size_t>(layer) < self.history_.size(), "KV layer {}", layer);
    return self.history_[static_cast<std::size_t>(layer)];
  }
  DeltaState& state(int layer) {
    ADZE_CHECK(layer >= 0 && static_cast<std::size_t>(layer) < self.states_.size(), "state layer {}", layer);
    return self.states_[static_cast<std::size_t>(layer)];
  }
  void written(BufferId id) {
    const int width = self.plan_.buffers[static_cast<std::size_t>(id)].width;
    ADZE_CHECK(at(id).width == width, "step {} wrote rows of {} to a buffer of {}", step_index, at(id).width, width);
    if (observer) observer(step_index, id, at(id));
  }
  void write(BufferId id, Rows values) {
    at(id) = std::move(values);
    written(id);
  }

  void operator()(const Embed& step) { write(step.out, embed(step, tokens)); }
  void operator()(const Norm& step) { write(step.out, norm(step, at(step.in))); }
  void operator()(const ResidualNorm& step) {
    std::vector<const Rows*> addends;
    addends.reserve(step.addends.size());
    for (const ResidualNorm::Addend& addend : step.addends) addends.push_back(&at(addend.in));
    Rows out = residual_norm(step, at(step.residual), addends);
    written(step.residual);
    if (step.out >= 0) write(step.out, std::move(out));
  }
  void operator()(const Project& step) { write(step.out, project(step, at(step.in))); }
  void operator()(const AttentionPrep& step) {
    const RopeSpec* rope = step.rope < 0 ? nullptr : &self.plan_.ropes[static_cast<std::size_t>(step.rope)];
    QueryKeyValue prepared = attention_prep(step, rope, at(step.in), positions);
    KvHistory& kv = history(step.kv_layer);
    if (step.stored != AttentionPrep::Stored::nothing) {
      append(kv.keys, prepared.k, self.rounding_);
      append(kv.values, prepared.v, self.rounding_);
    }
    write(step.out, std::move(prepared.q));
    if (step.gate >= 0) write(step.gate, std::move(prepared.gate));
  }
  void operator()(const Attend& step) {
    const KvHistory& kv = history(step.kv_layer);
    const Rows* gate = step.gate < 0 ? nullptr : &at(step.gate);
    write(step.out, attend(step, at(step.in), positions, kv.keys, kv.values, gate));
  }
  void operator()(const ProjectAdd& step) {
    project_add(step, at(step.in), at(step.out));
    written(step.out);
  }
  void operator()(const GatedPair& step) {
    write(step.out, gated_pair(step, at(step.in), step.side < 0 ? nullptr : &at(step.side)));
  }
  void operator()(const Route& step) { write(step.out, route(step, at(step.in))); }
  void operator()(const Experts& step) {
    experts(step, at(step.in), at(step.routes), at(step.out));
    written(step.out);
  }
  void operator()(const DeltaPrep& step) { write(step.out, delta_prep(step, at(step.in), state(step.state_layer))); }
  void operator()(const DeltaScan& step) { write(step.out, delta_scan(step, at(step.in), state(step.state_layer))); }
  void operator()(const DeltaOut& step) { write(step.out, delta_out(step, at(step.in), at(step.gate))); }
  void operator()(const Head& step) {
    const Rows& in = at(step.in);
    Rows last(wanted, in.width);
    for (int row = 0; row < wanted; ++row) std::ranges::copy(in[in.count - wanted + row], last[row].begin());
    logits = head(step, last);
  }
};

Interpreter::Interpreter(const Plan& plan, KvRounding rounding)
    : plan_(plan), rounding_(rounding), history_(plan.kv_layers.size()) {
  for (const StateLayer& layer : plan.state_layers) states_.emplace_back(layer);
}

Rows Interpreter::run(std::span<const std::int32_t> tokens, int wanted, const Observer& observer) {
  const int count = static_cast<int>(tokens.size());
  ADZE_CHECK(wanted >= 0 && wanted <= count, "logits of {} rows of {}", wanted, count);
  Visitor visitor{*this, tokens, wanted, observer, std::vector<std::int32_t>(tokens.size()), {}, {}};
  std::iota(visitor.positions.begin(), visitor.positions.end(), position_);
  for (const Buffer& buffer : plan_.buffers) visitor.buffers.emplace_back(count, buffer.width);
  for (const Step& step : plan_.steps) {
    std::visit(visitor, step);
    ++visitor.step_index;
  }
  position_ += count;
  return std::move(visitor.logits);
}

}  // namespace adze::ops::ref
