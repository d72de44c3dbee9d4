// The slow definition of every step: what a fused kernel of any backend is tested against.
//
// Plain loops over dense float32 rows of one sequence. Weights are dequantised to float32 exactly. A value that a step
// hands on is float32, rounded once; inside a step sums, roots, exponentials and products are double, so that a
// kernel's distance from the definition is the kernel's own error and no order of summation is preferred. The one
// exception is the angle of a rotation, which the vocabulary defines in float32.
//
// Shapes that do not fit each other are our own bug (ADZE_CHECK). Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "ops/plan.hpp"
#include "ops/ref/rows.hpp"
#include "ops/steps.hpp"

namespace adze::ops::ref {

double activate(Activation activation, double x);  // of one argument: not swiglu_oai
// act(gate) * up
double gated(Activation activation, double gate, double up);

// Normalises each run of `weight` elements (a head, or the whole row), the whole row when there is no weight.
// `out` may be `in`.
void normalise(const NormSpec& spec, std::span<const float> in, std::span<float> out);
// The same in groups of `group` values, which must be the weight's size when there is one.
void normalise(const NormSpec& spec, int group, std::span<const float> in, std::span<float> out);

// Turns the first rope.dims() values of one head by `position`, in place; the others pass through.
void rotate(const RopeSpec& rope, std::int32_t position, std::span<float> head);

// W x + b for each row; bias may be null.
Rows multiply(WeightRef weight, WeightRef bias, const Rows& in);

Rows embed(const Embed& step, std::span<const std::int32_t> tokens);
Rows norm(const Norm& step, const Rows& in);
// Updates the residual and returns the normalised rows; `addends` in the step's order.
Rows residual_norm(const ResidualNorm& step, Rows& residual, std::span<const Rows* const> addends);
Rows project(const Project& step, const Rows& in);

struct QueryKeyValue {
  Rows q;  // [T, heads * head_size]
  Rows k;  // [T, kv_heads * head_size], what the cache stores; no rows where nothing is stored
  Rows v;
  Rows gate{};  // [T, heads * head_size], if the step has one
};
// `rope` may be null; positions [T].
QueryKeyValue attention_prep(const AttentionPrep& step, const RopeSpec* rope, const Rows& in,
                             std::span<const std::int32_t> positions);

// `keys` and `values` as stored: row j holds position j. Every position up to a row's own must be there. `gate` is null
// when the step has none.
Rows attend(const Attend& step, const Rows& q, std::span<const std::int32_t> positions, const Rows& keys,
            const Rows& values, const Rows* gate = nullptr);

// What a recurrent layer remembers of the rows before, zeros at the start of a sequence.
struct DeltaState {
  explicit DeltaState(const StateLayer& layer);
  Rows inputs;                // [kernel - 1, channels]: of the convolution, the oldest first
  std::vector<float> memory;  // [value_heads, key_size, value_size]
};
// The next rows of one sequence. delta_prep changes state.inputs, delta_scan state.memory.
Rows delta_prep(const DeltaPrep& step, const Rows& in, DeltaState& state);
Rows delta_scan(const DeltaScan& step, const Rows& in, DeltaState& state);
Rows delta_out(const DeltaOut& step, const Rows& in, const Rows& gate);

// With step.add, `out` holds the residual before and after; else it is replaced.
void project_add(const ProjectAdd& step, const Rows& in, Rows& out);
// `side` is read only by a step without W_up, and may be null otherwise.
Rows gated_pair(const GatedPair& step, const Rows& in, const Rows* side = nullptr);
Rows route(const Route& step, const Rows& in);
// With step.add, `out` holds the residual before and after; else it is replaced.
void experts(const Experts& step, const Rows& in, const Rows& routes, Rows& out);
// Logits [T, V] of all rows given.
Rows head(const Head& step, const Rows& in);

}  // namespace adze::ops::ref
