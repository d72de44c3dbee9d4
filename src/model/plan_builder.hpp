// How a family writes its Plan: buffers by name, steps in order.
#pragma once

#include <string_view>
#include <utility>

#include "ops/plan.hpp"

namespace adze::model {

class PlanBuilder {
 public:
  // The buffer of this name and width, made on first use. Layers share buffers; one whose width differs gets its own.
  ops::BufferId buffer(std::string_view name, int width);
  int rope(ops::RopeSpec spec);            // index for AttentionPrep
  int kv_layer(ops::KvLayer kv_layer);     // index for AttentionPrep and Attend
  int state_layer(ops::StateLayer state);  // index for DeltaPrep and DeltaScan
  // Rows [first, first + count) of a weight, as a weight of their own.
  ops::WeightRef rows_of(ops::WeightRef weight, std::int64_t first, std::int64_t count);
  // The same rows of each outermost slice: of every expert.
  ops::WeightRef rows_of_each(ops::WeightRef weight, std::int64_t first, std::int64_t count);
  void layer(int index) { layer_ = index; }  // of the steps added from here on; -1: none
  void add(ops::Step step);

  ops::Plan& plan() { return plan_; }

 private:
  ops::Plan plan_;
  int layer_ = -1;
};

}  // namespace adze::model
