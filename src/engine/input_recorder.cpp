#include "engine/input_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "base/check.hpp"

namespace adze::engine {
namespace {

// The matrices that a step multiplies the rows of its `in` buffer by. Experts are not among them: they have some rows.
std::vector<ops::WeightRef> weights_of(const ops::Step& step) {
  std::vector<ops::WeightRef> weights;
  if (const auto* project = std::get_if<ops::Project>(&step)) {
    for (const auto& part : project->parts) weights.push_back(part.weight);
  } else if (const auto* add = std::get_if<ops::ProjectAdd>(&step)) {
    weights = {add->weight};
  } else if (const auto* pair = std::get_if<ops::GatedPair>(&step)) {
    weights = {pair->gate, pair->up};
  } else if (const auto* route = std::get_if<ops::Route>(&step)) {
    weights = {route->weight};
  }
  return weights;
}

}  // namespace

InputRecorder::InputRecorder(const ops::Plan& plan) : plan_(plan) {}

bool InputRecorder::wants_inputs(int step) const {
  const ops::Step& s = plan_.steps[static_cast<std::size_t>(step)];
  return std::holds_alternative<ops::Experts>(s) || !weights_of(s).empty();
}

void InputRecorder::before_step(int step, ops::BufferId buffer, std::span<const float> values, int rows) {
  const ops::Step& s = plan_.steps[static_cast<std::size_t>(step)];
  if (const auto* experts = std::get_if<ops::Experts>(&s)) {
    if (buffer == experts->in) inputs_.assign(values.begin(), values.end());
    if (buffer == experts->routes) add_routed(*experts, values);
    return;
  }
  if (buffer != ops::step_access(s).reads.front()) return;  // what else it reads is no factor of a product
  const std::vector<ops::WeightRef> weights = weights_of(s);
  const std::size_t width = values.size() / static_cast<std::size_t>(rows);
  for (std::size_t at = 0; at < values.size(); at += width) add_row(weights, 0, 1, values.subspan(at, width));
}

void InputRecorder::add_routed(const ops::Experts& step, std::span<const float> routes) {
  const auto slots = static_cast<std::size_t>(step.slots);
  const std::size_t rows = routes.size() / (2 * slots), width = inputs_.size() / rows;
  const ops::WeightRef routed[] = {step.routed.gate, step.routed.up};
  const ops::WeightRef shared[] = {step.shared.gate, step.shared.up};
  for (std::size_t row = 0; row < rows; ++row) {
    const auto input = std::span<const float>(inputs_).subspan(row * width, width);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const int expert = static_cast<int>(routes[row * 2 * slots + slot]);
      if (expert == step.routed.count) {
        add_row(shared, 0, 1, input);
      } else {
        add_row(routed, expert, step.routed.count, input);
      }
    }
  }
}

void InputRecorder::after_experts(int step, int expert, std::span<const float> activated, int rows) {
  const auto& s = std::get<ops::Experts>(plan_.steps[static_cast<std::size_t>(step)]);
  const bool is_shared = expert == s.routed.count;
  const ops::WeightRef down[] = {is_shared ? s.shared.down : s.routed.down};
  const std::size_t width = activated.size() / static_cast<std::size_t>(rows);
  for (std::size_t at = 0; at < activated.size(); at += width) {
    add_row(down, is_shared ? 0 : expert, is_shared ? 1 : s.routed.count, activated.subspan(at, width));
  }
}

void InputRecorder::add_row(std::span<const ops::WeightRef> weights, int index, int count, std::span<const float> row) {
  for (std::size_t w = 0; w < weights.size(); ++w) {
    if (weights[w] == nullptr) continue;
    // Two parts of one stacked tensor read the same row: it counts once.
    const std::string_view name = weights[w]->name;
    const auto same = [&](ops::WeightRef other) { return other != nullptr && other->name == name; };
    if (std::any_of(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(w), same)) continue;
    auto found = sums_.find(name);
    if (found == sums_.end()) {
      const auto matrices = static_cast<std::size_t>(count);
      found = sums_
                  .emplace(std::string(name), Sums{.squares = std::vector<double>(matrices * row.size()),
                                                   .counts = std::vector<double>(matrices)})
                  .first;
    }
    Sums& sums = found->second;
    const auto first = static_cast<std::size_t>(index) * row.size();
    ADZE_CHECK(first + row.size() <= sums.squares.size(), "{} inputs of matrix {} of '{}'", row.size(), index, name);
    for (std::size_t i = 0; i < row.size(); ++i) {
      sums.squares[first + i] += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    }
    sums.counts[static_cast<std::size_t>(index)] += 1.0;
    if (not_finite_.empty() && !std::ranges::all_of(row, [](float v) { return std::isfinite(v); })) not_finite_ = name;
  }
}

Status InputRecorder::check() const {
  if (not_finite_.empty()) return {};
  return fail(ErrorCode::non_finite, fmt::format("what '{}' is multiplied by is not a finite number", not_finite_),
              "A weight in front of it is damaged: get the file again, or convert the model again.");
}

std::vector<Engine::InputSquares> InputRecorder::take() const {
  std::vector<Engine::InputSquares> out;
  for (const auto& [name, sums] : sums_) {
    out.push_back({.weight = name,
                   .sums = {sums.squares.begin(), sums.squares.end()},
                   .counts = {sums.counts.begin(), sums.counts.end()}});
  }
  return out;
}

}  // namespace adze::engine
