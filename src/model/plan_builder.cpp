#include "model/plan_builder.hpp"

#include <memory>
#include <string>
#include <vector>

#include "base/check.hpp"

namespace adze::model {

ops::BufferId PlanBuilder::buffer(std::string_view name, int width) {
  for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
    if (plan_.buffers[i].name == name && plan_.buffers[i].width == width) return static_cast<ops::BufferId>(i);
  }
  plan_.buffers.push_back({std::string(name), width});
  return static_cast<ops::BufferId>(plan_.buffers.size() - 1);
}

int PlanBuilder::rope(ops::RopeSpec spec) {
  plan_.ropes.push_back(std::move(spec));
  return static_cast<int>(plan_.ropes.size() - 1);
}

int PlanBuilder::kv_layer(ops::KvLayer kv_layer) {
  plan_.kv_layers.push_back(kv_layer);
  return static_cast<int>(plan_.kv_layers.size() - 1);
}

ops::WeightRef PlanBuilder::rows_of(ops::WeightRef weight, std::int64_t first, std::int64_t count) {
  auto part = std::make_shared<tensor::TensorView>(tensor::rows_of(*weight, first, count));
  plan_.parts.push_back(part);
  return part.get();
}

ops::WeightRef PlanBuilder::rows_of_each(ops::WeightRef weight, std::int64_t first, std::int64_t count) {
  const std::int64_t slices = weight->shape[0], rows = weight->rows() / slices;
  ADZE_CHECK(first >= 0 && count > 0 && first + count <= rows, "rows {} to {} of {}", first, first + count, rows);
  ADZE_CHECK(weight->groups.size == 0, "scales of '{}' lie in no slices", weight->name);
  struct Part {
    tensor::TensorView view;
    std::vector<const std::byte*> starts;
  };
  auto part = std::make_shared<Part>(Part{*weight, {}});
  for (std::int64_t i = 0; i < slices; ++i) part->starts.push_back(weight->row(i * rows + first));
  part->view.shape.dims[static_cast<std::size_t>(weight->shape.rank - 2)] = count;
  part->view.bytes = {};
  part->view.slices = part->starts;
  plan_.parts.emplace_back(part, &part->view);
  return &part->view;
}

int PlanBuilder::state_layer(ops::StateLayer state) {
  plan_.state_layers.push_back(state);
  return static_cast<int>(plan_.state_layers.size() - 1);
}

void PlanBuilder::add(ops::Step step) {
  plan_.steps.push_back(std::move(step));
  plan_.step_layers.push_back(layer_);
}

}  // namespace adze::model
