// How much the values of one block matter to the products that its row takes part in: what an importance matrix gives.
#pragma once

namespace adze::tensor::blocks {

struct Importance {
  const float* columns;   // per value of the block: the mean square of what its column is multiplied by
  float row_mean_square;  // of all values of the row that the block belongs to
};

}  // namespace adze::tensor::blocks
