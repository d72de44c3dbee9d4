// Random weights in any type, as fast as memory is copied: nothing is quantised per weight. A few thousand values are
// drawn and quantised once for each type and row length, and tensors are put together from pieces of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "convert/tensors.hpp"
#include "format/gguf_writer.hpp"

namespace adze::convert {

// A pure function of its seed. One thread.
class RandomWeights {
 public:
  explicit RandomWeights(std::uint64_t seed) : seed_(seed) {}

  // Matrices have the variance 1 / columns, so that a product keeps its input's magnitude; norms and scales are near
  // 1, biases near 0, decays of recurrent states negative. Errors: those of the sink.
  Status produce(const OutTensor& tensor, tensor::DType type, const format::TensorSink& sink);

 private:
  // Pieces of a row: kPieceValues values, or one block where rows do not divide by that.
  struct Pool {
    std::size_t piece_bytes = 0;
    std::int64_t piece_values = 0;
    std::vector<std::byte> bytes{};
  };
  const Pool& pool(tensor::DType type, std::int64_t columns);

  std::uint64_t seed_;
  std::map<std::pair<tensor::DType, std::int64_t>, Pool> pools_;
};

}  // namespace adze::convert
