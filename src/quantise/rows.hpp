// Rows of a tensor in another type, by as many threads as are asked for. The bytes do not depend on how many.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "format/gguf_writer.hpp"
#include "tensor/view.hpp"

namespace adze::quantise {

// Per column of a tensor's rows the mean square of what it is multiplied by, [matrices, columns]: one set for each
// matrix of a stacked tensor, row r belongs to matrix r / (rows / matrices). Empty: unknown.
using Importance = std::span<const float>;

// Rows [first, first + count) of `from` as `type`, into `to` (count * row_bytes). The row length must be a multiple of
// the type's block, importance.size() a multiple of it that divides the tensor evenly (ADZE_CHECK). Errors,
// naming the tensor: corrupt_file for a value that is not finite, invalid_argument for one that is too large for `type`
// (in float16, or by a scale in float16).
Status quantise_rows(const tensor::TensorView& from, std::int64_t first, std::int64_t count, tensor::DType type,
                     Importance importance, int threads, std::byte* to);

// All rows, in pieces of kPieceBytes (enough work for all threads, little beside a model): what a TensorProducer of
// GgufWriter does. A tensor that has the type already is handed on as it is. Errors: those of quantise_rows, for what
// is handed on as well, and those of the sink.
inline constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
Status produce_as(const tensor::TensorView& from, tensor::DType type, Importance importance, int threads,
                  const format::TensorSink& sink);

}  // namespace adze::quantise
