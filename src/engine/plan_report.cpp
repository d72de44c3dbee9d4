#include "engine/plan_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <variant>

#include "engine/memory.hpp"

namespace adze::engine {
namespace {

using Json = nlohmann::ordered_json;

using WeightList = std::vector<ops::WeightRef>;

// The weights of a step, and null for those that it does without.
struct WeightsOf {
  WeightList operator()(const ops::Embed& s) const { return {s.table}; }
  WeightList operator()(const ops::Norm& s) const { return {s.norm.weight}; }
  WeightList operator()(const ops::ResidualNorm& s) const {
    WeightList list{s.norm.weight};
    for (const auto& addend : s.addends) list.push_back(addend.norm.weight);
    return list;
  }
  WeightList operator()(const ops::Project& s) const {
    WeightList list;
    for (const auto& part : s.parts) list.insert(list.end(), {part.weight, part.bias});
    return list;
  }
  WeightList operator()(const ops::AttentionPrep& s) const { return {s.q_norm.weight, s.k_norm.weight}; }
  WeightList operator()(const ops::Attend& s) const { return {s.sinks}; }
  WeightList operator()(const ops::ProjectAdd& s) const { return {s.weight, s.bias}; }
  WeightList operator()(const ops::GatedPair& s) const { return {s.gate, s.up, s.gate_bias, s.up_bias}; }
  WeightList operator()(const ops::Route& s) const {
    return {s.weight, s.bias, s.choice_bias, s.expert_scale, s.shared_gate};
  }
  WeightList operator()(const ops::Experts& s) const {
    WeightList list;
    for (const ops::Experts::Weights* w : {&s.routed, &s.shared}) {
      list.insert(list.end(), {w->gate, w->up, w->down, w->gate_bias, w->up_bias, w->down_bias});
    }
    return list;
  }
  WeightList operator()(const ops::DeltaPrep& s) const { return {s.convolution, s.rate, s.dt_bias}; }
  WeightList operator()(const ops::DeltaScan&) const { return {}; }
  WeightList operator()(const ops::DeltaOut& s) const { return {s.norm.weight}; }
  WeightList operator()(const ops::Head& s) const { return {s.norm.weight, s.weight, s.bias}; }
};

// What a step touches, in neutral words.
struct Touched {
  ops::Access buffers;
  WeightList weights;
};

Touched touched_by(const ops::Step& step) {
  Touched touched{ops::step_access(step), std::visit(WeightsOf{}, step)};
  std::erase(touched.weights, nullptr);
  return touched;
}

std::string shape_text(const tensor::TensorView& weight) {
  std::string out;
  for (int i = 0; i < weight.shape.rank; ++i) out += fmt::format("{}{}", i == 0 ? "" : "x", weight.shape[i]);
  return out;
}

// One line per step: the step, its buffers, and the types and shapes of its weights.
std::string step_line(const ops::Plan& plan, std::size_t s) {
  const Touched touched = touched_by(plan.steps[s]);
  const auto names = [&plan](const std::vector<ops::BufferId>& ids) {
    std::string out;
    for (const ops::BufferId id : ids) {
      out += fmt::format("{}{}", out.empty() ? "" : ", ", plan.buffers[static_cast<std::size_t>(id)].name);
    }
    return out;
  };
  std::string weights;
  for (const ops::WeightRef w : touched.weights) {
    weights += fmt::format("{}{} {}", weights.empty() ? "" : ", ", tensor::type_name(*w), shape_text(*w));
  }
  const std::string writes = touched.buffers.writes.empty() ? std::string("logits") : names(touched.buffers.writes);
  return fmt::format(
      "    {:<14} {:<22} {}\n", ops::step_name(plan.steps[s]),
      fmt::format("{} -> {}", touched.buffers.reads.empty() ? std::string("tokens") : names(touched.buffers.reads),
                  writes),
      weights);
}

std::string dispatch_text(const ops::Plan& plan, const backend::DispatchInfo& dispatch) {
  std::string out = fmt::format("  {:<24} {}", dispatch.name, dispatch.kernel);
  if (!dispatch.reason.empty()) out += fmt::format("  ({})", dispatch.reason);
  out += '\n';
  for (const std::string& choice : dispatch.choices) out += fmt::format("    {}\n", choice);
  if (!dispatch.together.empty()) out += fmt::format("    together: {}\n", dispatch.together);
  if (!dispatch.meets) out += "    side by side with the next: no thread waits for another between them\n";
  for (int s = dispatch.first_step; s <= dispatch.last_step; ++s) out += step_line(plan, static_cast<std::size_t>(s));
  return out;
}

// Neighbouring dispatches of one layer, or outside the layers.
struct Section {
  int first = 0, last = 0;  // layers; several that read alike are told once
  int dispatches = 0, barriers = 0, barriers_of_many_rows = 0;
  std::string text;

  void add(const ops::Plan& plan, const backend::DispatchInfo& dispatch) {
    ++dispatches;
    barriers += dispatch.barriers;
    barriers_of_many_rows += dispatch.barriers_of_many_rows;
    text += dispatch_text(plan, dispatch);
  }
  std::string title() const {
    const std::string layers = first < 0       ? std::string("outside the layers")
                               : first == last ? fmt::format("layer {}", first)
                                               : fmt::format("layers {} to {}, each", first, last);
    return fmt::format("\n{}: {} dispatch{}, {} barrier{} for one row, {} for many\n", layers, dispatches,
                       dispatches == 1 ? "" : "es", barriers, barriers == 1 ? "" : "s", barriers_of_many_rows);
  }
};

Json weight_json(const tensor::TensorView& weight) {
  Json shape = Json::array();
  for (int i = 0; i < weight.shape.rank; ++i) shape.push_back(weight.shape[i]);
  return {{"name", std::string(weight.name)},
          {"type", tensor::type_name(weight)},
          {"shape", std::move(shape)},
          {"bytes", weight.size_bytes()}};
}

Json step_json(const ops::Plan& plan, std::size_t s) {
  const Touched touched = touched_by(plan.steps[s]);
  const auto names = [&plan](const std::vector<ops::BufferId>& ids) {
    Json out = Json::array();
    for (const ops::BufferId id : ids) out.push_back(plan.buffers[static_cast<std::size_t>(id)].name);
    return out;
  };
  Json weights = Json::array();
  for (const ops::WeightRef w : touched.weights) weights.push_back(weight_json(*w));
  return {{"step", std::string(ops::step_name(plan.steps[s]))},
          {"layer", plan.step_layers[s]},
          {"reads", names(touched.buffers.reads)},
          {"writes", names(touched.buffers.writes)},
          {"weights", std::move(weights)}};
}

}  // namespace

std::string plan_text(const ModelInfo& info, const ops::Plan& plan, const backend::Schedule& schedule,
                      const backend::MemoryUse& memory) {
  std::string out =
      fmt::format("{}: {}, {} layers, {} steps\n", info.name, info.architecture, info.layers, plan.steps.size());
  out += fmt::format("backend {}; numeric class {}\nroute {}\n", schedule.backend, schedule.numeric_class,
                     to_hex(schedule.route));
  out += fmt::format("memory: weights {}, working {}, KV {} per token ({} for the context of {})",
                     format_bytes(memory.weight_bytes), format_bytes(memory.scratch_bytes),
                     format_bytes(info.kv_bytes_per_token), format_bytes(memory.kv_bytes_reserved), info.context);
  if (memory.bytes_per_sliding_page > 0) {
    out += fmt::format(", of that {} per token of the windows of sliding layers",
                       format_bytes(memory.bytes_per_sliding_page / backend::kPageTokens));
  }
  if (memory.packed_bytes > 0) out += fmt::format(", packed weights {}", format_bytes(memory.packed_bytes));
  if (memory.bytes_per_slot > 0) out += fmt::format(", recurrent state {}", format_bytes(memory.bytes_per_slot));
  out += '\n';
  out += info.profile + '\n';
  for (const std::string& choice : schedule.choices) out += fmt::format("  {}\n", choice);
  out += fmt::format("  {}\n", info.chunk);
  std::vector<Section> sections;
  for (const backend::DispatchInfo& dispatch : schedule.dispatches) {
    if (sections.empty() || sections.back().last != dispatch.layer) {
      sections.push_back({.first = dispatch.layer, .last = dispatch.layer, .text = {}});
    }
    sections.back().add(plan, dispatch);
  }
  for (std::size_t i = 0; i < sections.size();) {
    Section told = sections[i];
    for (++i; i < sections.size() && sections[i].text == told.text && told.first >= 0; ++i) {
      told.last = sections[i].last;
    }
    out += told.title() + told.text;
  }
  return out;
}

std::string plan_json(const ModelInfo& info, const ops::Plan& plan, const backend::Schedule& schedule,
                      const backend::MemoryUse& memory) {
  Json dispatches = Json::array();
  for (const backend::DispatchInfo& d : schedule.dispatches) {
    dispatches.push_back({{"name", d.name},
                          {"layer", d.layer},
                          {"first_step", d.first_step},
                          {"last_step", d.last_step},
                          {"kernel", d.kernel},
                          {"reason", d.reason},
                          {"shape", d.shape},
                          {"choices", d.choices},
                          {"together", d.together},
                          {"side_by_side_with_next", !d.meets},
                          {"barriers", d.barriers},
                          {"barriers_of_many_rows", d.barriers_of_many_rows}});
  }
  Json steps = Json::array();
  for (std::size_t s = 0; s < plan.steps.size(); ++s) steps.push_back(step_json(plan, s));
  const Json root{{"model", info.name},
                  {"architecture", info.architecture},
                  {"backend", schedule.backend},
                  {"numeric_class", schedule.numeric_class},
                  {"route", to_hex(schedule.route)},
                  {"profile", info.profile},
                  {"choices", schedule.choices},
                  {"chunk", info.chunk},
                  {"context", info.context},
                  {"memory",
                   {{"weight_bytes", memory.weight_bytes},
                    {"packed_bytes", memory.packed_bytes},
                    {"scratch_bytes", memory.scratch_bytes},
                    {"bytes_per_page", memory.bytes_per_page},
                    {"bytes_per_sliding_page", memory.bytes_per_sliding_page},
                    {"page_tokens", backend::kPageTokens},
                    {"kv_bytes_reserved", memory.kv_bytes_reserved},
                    {"bytes_per_slot", memory.bytes_per_slot},
                    {"state_bytes_reserved", memory.state_bytes_reserved}}},
                  {"dispatches", std::move(dispatches)},
                  {"steps", std::move(steps)}};
  // Names come from files: bytes that are not UTF-8 are replaced, never thrown on.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace adze::engine
