// What every backend asks of a batch, and of the options that it prepares for batches with, before it touches anything.
#pragma once

#include <cstdint>

#include "backend/backend.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::backend {

// Tokens within the vocabulary, positions within the context and their sequence's pages, pages among `pages`, at most
// `max_rows` rows. Errors: invalid_argument, naming the value and its range.
Status check_batch(const Batch& batch, const ops::Plan& plan, int max_rows, std::int64_t pages);

// Numbers within their limits. Errors: invalid_argument, naming the number and its range.
Status check_options(const PrepareOptions& options);

}  // namespace adze::backend
