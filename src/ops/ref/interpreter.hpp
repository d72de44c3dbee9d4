// Runs a Plan step by step with the reference functions: the slow definition of a whole model. One sequence, all rows
// of every step, K and V of all positions kept. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ops/plan.hpp"
#include "ops/ref/ref.hpp"

namespace adze::ops::ref {

// How K and V are rounded when they are stored; attention reads them as stored.
enum class KvRounding : std::uint8_t { none, f16 };

class Interpreter {
 public:
  // Sees a buffer after a step wrote it; a ResidualNorm or an AttentionPrep may report more than one.
  using Observer = std::function<void(int step, BufferId buffer, const Rows& values)>;

  explicit Interpreter(const Plan& plan, KvRounding rounding = KvRounding::none);  // the plan must outlive it

  // Runs tokens at the next positions. Returns the logits of the last `wanted` of them [wanted, V]; no rows when the
  // plan has no head.
  Rows run(std::span<const std::int32_t> tokens, int wanted, const Observer& observer = {});

  int position() const { return position_; }
  // What the rows so far left in a recurrent layer.
  const DeltaState& state(int state_layer) const { return states_.at(static_cast<std::size_t>(state_layer)); }

 private:
  struct Visitor;
  struct KvHistory {
    Rows keys;
    Rows values;
  };

  const Plan& plan_;
  KvRounding rounding_;
  int position_ = 0;  // of the next token
  std::vector<KvHistory> history_;
  std::vector<DeltaState> states_;
};

}  // namespace adze::ops::ref
