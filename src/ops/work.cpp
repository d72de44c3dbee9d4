#include "ops/work.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace adze::ops {
namespace {

class Counter {
 public:
  Counter(const Plan& plan, const ForwardRows& forward, double bytes_per_position) : plan_(plan), forward_(forward) {
    double values = 0;
    for (const KvLayer& layer : plan.kv_layers) values += 2.0 * layer.kv_heads * layer.head_size;
    if (values > 0) bytes_per_value_ = bytes_per_position / values;
  }

  void count(const Project& step) {
    for (const Project::Part& part : step.parts) multiply(part.weight);
  }
  void count(const ProjectAdd& step) { multiply(step.weight); }
  void count(const GatedPair& step) {
    multiply(step.gate);
    if (step.up != nullptr) multiply(step.up);
  }
  void count(const Route& step) { multiply(step.weight); }
  void count(const Head& step) {
    if (forward_.wanted > 0) multiply(step.weight, static_cast<double>(forward_.wanted));
  }
  void count(const Experts& step) {
    const bool shared = step.shared.count > 0;
    experts(step.routed, static_cast<double>(step.slots - (shared ? 1 : 0)));
    if (shared) experts(step.shared, 1);
  }
  void count(const Attend& step) {
    const KvLayer& layer = plan_.kv_layers[static_cast<std::size_t>(step.kv_layer)];
    const std::int64_t rows = forward_.rows / std::max<std::int64_t>(forward_.sequences, 1);
    std::int64_t positions = forward_.depth + rows;
    if (step.window > 0) positions = std::min(positions, step.window + rows - 1);
    work_.cache_bytes +=
        static_cast<double>(forward_.sequences * positions) * 2.0 * layer.kv_heads * layer.head_size * bytes_per_value_;
  }
  void count(const DeltaScan& step) {
    const StateLayer& layer = plan_.state_layers[static_cast<std::size_t>(step.state_layer)];
    const double state = static_cast<double>(sizeof(float)) * layer.value_heads * layer.key_size * layer.value_size;
    work_.cache_bytes += 2 * state * static_cast<double>(forward_.sequences);
  }
  void count(const Embed&) {}  // a row of it
  void count(const Norm&) {}
  void count(const ResidualNorm&) {}
  void count(const AttentionPrep&) {}
  void count(const DeltaPrep&) {}
  void count(const DeltaOut&) {}

  const Work& work() const { return work_; }

 private:
  void multiply(WeightRef weight) { multiply(weight, static_cast<double>(forward_.rows)); }
  // `rows` times all of the weight in products; `share` of it is read.
  void multiply(WeightRef weight, double rows, double share = 1) {
    work_.weight_bytes += share * static_cast<double>(weight->size_bytes());
    (tensor::is_block_type(weight->type) ? work_.byte_products : work_.float_products) +=
        rows * static_cast<double>(weight->shape.elements());
  }
  void experts(const Experts::Weights& weights, double used) {
    const double rows = static_cast<double>(forward_.rows), all = static_cast<double>(weights.count);
    const double touched = 1 - std::pow(1 - used / all, rows);  // expected share of the experts
    for (const WeightRef weight : {weights.gate, weights.up, weights.down}) {
      if (weight != nullptr) multiply(weight, rows * used / all, touched);
    }
  }

  const Plan& plan_;
  const ForwardRows& forward_;
  double bytes_per_value_ = 0;
  Work work_;
};

}  // namespace

Work work_of(const Plan& plan, const ForwardRows& forward, double bytes_per_position) {
  Counter counter(plan, forward, bytes_per_position);
  for (const Step& step : plan.steps) std::visit([&](const auto& s) { counter.count(s); }, step);
  return counter.work();
}

Work in_floats(const Work& work) {
  Work floats = work;
  floats.float_products += std::exchange(floats.byte_products, 0.0);
  return floats;
}

}  // namespace adze::ops
