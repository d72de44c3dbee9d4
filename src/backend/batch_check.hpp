// What every backend asks of a batch before it touches anything.
#pragma once

#include <cstdint>

#include "backend/backend.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::backend {

// Tokens within the vocabulary, positions within the context and their sequence's pages, pages among `pages`, at most
// `max_rows` rows. Errors: invalid_argument, naming the value and its range.
Status check_batch(const Batch& batch, const ops::Plan& plan, int max_rows, std::int64_t pages);

}  // namespace adze::backend
