// Sums the squares of what the model's matrices are multiplied by, column by column.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adze/adze.hpp"
#include "backend/backend.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::engine {

// Every matrix of the plan's layers and in front of them; not the head's, whose input no step writes. Of an expert's
// matrices the rows routed to it. Sums are double: thousands of small squares are added to a large one.
class InputRecorder final : public backend::StepObserver {
 public:
  explicit InputRecorder(const ops::Plan& plan);  // must outlive the recorder
  bool wants_inputs(int step) const override;
  void before_step(int step, ops::BufferId buffer, std::span<const float> values, int rows) override;
  void after_experts(int step, int expert, std::span<const float> activated, int rows) override;
  // Errors: non_finite, naming the first matrix whose input was not finite; its sums say nothing.
  Status check() const;
  std::vector<Engine::InputSquares> take() const;  // by name

 private:
  struct Sums {
    std::vector<double> squares;  // [matrices, columns]
    std::vector<double> counts;   // [matrices]
  };
  // One row into matrix `index` of `count` of each of the weights, which may be null.
  void add_row(std::span<const ops::WeightRef> weights, int index, int count, std::span<const float> row);
  void add_routed(const ops::Experts& step, std::span<const float> routes);

  const ops::Plan& plan_;
  std::vector<float> inputs_;  // [rows, hidden] of the Experts step whose routes come next
  std::map<std::string, Sums, std::less<>> sums_;
  std::string not_finite_;  // the first such matrix; empty: none
};

}  // namespace adze::engine
