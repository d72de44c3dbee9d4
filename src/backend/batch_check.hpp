// What every backend asks of a batch, and of the options that it prepares for batches with, before it touches anything.
#pragma once

#include <cstdint>

#include "backend/backend.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::backend {

// At most as many rows as the options say, tokens within the vocabulary, positions within the context and one behind
// the other, each sequence's pages there as far as its rows see, and all among those that the options give. Errors:
// invalid_argument, naming the value and its range.
Status check_batch(const Batch& batch, const ops::Plan& plan, const PrepareOptions& options);

// Numbers within their limits. Errors: invalid_argument, naming the number and its range.
Status check_options(const PrepareOptions& options);

}  // namespace adze::backend
