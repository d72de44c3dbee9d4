#include "model/plan_builder.hpp"

#include <memory>
#include <string>
#include <vector>

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
  auto part = tensor::rows_of_each(*weight, first, count);
  plan_.parts.push_back(part);
  return part.get();
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
