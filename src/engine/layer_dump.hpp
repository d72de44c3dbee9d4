// What every layer of a plan computed, under the names that the oracles use.
#pragma once

#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "backend/backend.hpp"
#include "ops/plan.hpp"

namespace adze::engine {

// Collects, over any number of batches in order: "embed" (the stream after the embedding), "layer.I.self_attn" and
// "layer.I.mlp" (what a sub-block added to the stream, as a difference, so to float32 rounding of the stream), and
// "layer.I.out" (the stream after layer I). Each [rows, hidden]. Every row of the batches must want its logits, or the
// last layer leaves rows out.
class LayerRecorder final : public backend::StepObserver {
 public:
  explicit LayerRecorder(const ops::Plan& plan);
  void after_step(int step, const ops::Buffer& buffer, std::span<const float> values, int rows) override;
  std::vector<Engine::LayerDump> take() { return std::move(dumps_); }

 private:
  struct Names {
    std::string stream;      // where the stream after this step goes; empty: nowhere
    std::string difference;  // where what the step added goes
  };
  void append(const std::string& name, std::span<const float> values, int rows, int columns);

  std::vector<Names> names_;   // per step of the plan
  std::vector<float> stream_;  // [rows, hidden] before the step
  std::vector<float> added_;
  std::vector<Engine::LayerDump> dumps_;
};

}  // namespace adze::engine
