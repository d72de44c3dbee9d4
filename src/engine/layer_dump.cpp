#include "engine/layer_dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "base/check.hpp"

namespace adze::engine {

LayerRecorder::LayerRecorder(const ops::Plan& plan) : names_(plan.steps.size()) {
  std::vector<std::string_view> mixer(plan.buffers.size());  // per buffer: what wrote it, when it was a mixer
  std::size_t last_of_layer = names_.size();
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const int layer = plan.step_layers[s];
    // The first one alone fills the stream: Gemma 4 embeds inputs for every layer too.
    if (s == 0 && std::holds_alternative<ops::Embed>(plan.steps[s])) names_[s].stream = "embed";
    if (const auto* attend = std::get_if<ops::Attend>(&plan.steps[s])) {
      mixer[static_cast<std::size_t>(attend->out)] = "self_attn";
    }
    if (const auto* delta = std::get_if<ops::DeltaOut>(&plan.steps[s])) {
      mixer[static_cast<std::size_t>(delta->out)] = "linear_attn";
    }
    const auto* project = std::get_if<ops::ProjectAdd>(&plan.steps[s]);
    const auto* experts = std::get_if<ops::Experts>(&plan.steps[s]);
    const bool adds = (project != nullptr && project->add) || (experts != nullptr && experts->add);
    if (!adds || layer < 0) continue;
    const std::string_view from = project == nullptr ? "" : mixer[static_cast<std::size_t>(project->in)];
    names_[s].difference = fmt::format("layer.{}.{}", layer, from.empty() ? "mlp" : from);
    names_[s].stream = fmt::format("layer.{}.out", layer);
    // Only the layer's last addition leaves its output.
    if (last_of_layer < s && plan.step_layers[last_of_layer] == layer) names_[last_of_layer].stream.clear();
    last_of_layer = s;
  }
}

void LayerRecorder::after_step(int step, const ops::Buffer& buffer, std::span<const float> values, int rows) {
  const Names& names = names_[static_cast<std::size_t>(step)];
  if (names.stream.empty() && names.difference.empty()) return;
  if (!names.difference.empty()) {
    ADZE_CHECK(stream_.size() == values.size(), "{} values after {}", values.size(), stream_.size());
    added_.resize(values.size());
    std::transform(values.begin(), values.end(), stream_.begin(), added_.begin(), std::minus<>());
    append(names.difference, added_, rows, buffer.width);
  }
  stream_.assign(values.begin(), values.end());
  if (!names.stream.empty()) append(names.stream, values, rows, buffer.width);
}

void LayerRecorder::append(const std::string& name, std::span<const float> values, int rows, int columns) {
  auto found = std::find_if(dumps_.begin(), dumps_.end(), [&](const auto& dump) { return dump.name == name; });
  if (found == dumps_.end()) {
    dumps_.push_back({.name = name, .rows = 0, .columns = columns, .values = {}});
    found = dumps_.end() - 1;
  }
  found->rows += rows;
  found->values.insert(found->values.end(), values.begin(), values.end());
}

}  // namespace adze::engine
