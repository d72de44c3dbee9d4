// Weights that a Hugging Face folder stores otherwise than steps read them (docs/design/0004). Experts in tensors of
// their own are seen as one weight, no byte is moved. What lies transposed, interleaved, grouped by head or in two
// parts is rearranged once, when the model is loaded.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/weight_store.hpp"
#include "ops/steps.hpp"
#include "tensor/view.hpp"

namespace adze::model {

enum class Transform : std::uint8_t;

// A weight whose view points into this object.
struct MadeWeight {
  std::vector<std::byte> bytes;          // of a copy
  std::vector<const std::byte*> slices;  // of tensors that lie apart
  tensor::TensorView view;
};

// [E, n, m] of the tensors [n, m] whose names have each expert's number where `pattern` has '#'. Errors: those of
// WeightStore::require; unsupported_type (experts of different types).
Result<std::unique_ptr<MadeWeight>> stack_experts(format::WeightStore& store, std::string_view pattern,
                                                  const tensor::Shape& shape, std::string_view why);

// Whether a transform is one of those that move a weight's rows.
bool is_rearranged(Transform transform);
// The weight of this shape, a copy with the same values in the order that the transform says; `heads` are those of
// delta_qkv and delta_z. Errors: those of WeightStore::require; unsupported_type (no float type).
Result<std::unique_ptr<MadeWeight>> rearrange(format::WeightStore& store, const std::string& name,
                                              const tensor::Shape& shape, Transform transform,
                                              const ops::DeltaHeads& heads, std::string_view why);

}  // namespace adze::model
