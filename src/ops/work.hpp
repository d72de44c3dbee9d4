// What one forward must read and multiply at the least, counted from the plan: what a measured time is compared with.
#pragma once

#include <cstdint>

#include "ops/plan.hpp"

namespace adze::ops {

// Rows of one forward: `sequences` texts of equal length, each with `depth` positions computed before.
struct ForwardRows {
  std::int64_t rows = 1;    // of all sequences together
  std::int64_t wanted = 1;  // of them, those whose logits are wanted
  std::int64_t sequences = 1;
  std::int64_t depth = 0;
};

// Every weight and every visible position counts once, however many rows use it; of experts, those that the rows are
// routed to if each is as likely. Products of attention and of recurrent layers are left out.
struct Work {
  double weight_bytes = 0;   // of matrices, as they are stored
  double cache_bytes = 0;    // keys and values read; recurrent states read and written
  double byte_products = 0;  // multiply-adds with quantised weights
  double float_products = 0;
};

// bytes_per_position: of the keys and values of all layers as the backend keeps them.
Work work_of(const Plan& plan, const ForwardRows& forward, double bytes_per_position);

// The same where quantised weights are multiplied in float32.
Work in_floats(const Work& work);

}  // namespace adze::ops
