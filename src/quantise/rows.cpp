#include "quantise/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "base/check.hpp"

namespace adze::quantise {

Status quantise_rows(const tensor::TensorView& from, std::int64_t first, std::int64_t count, tensor::DType type,
                     Importance importance, int threads, std::byte* to) {
  const std::int64_t columns = from.columns();
  const std::size_t row_bytes = tensor::row_bytes(type, columns);
  std::int64_t rows_of_matrix = from.rows();
  if (!importance.empty()) {
    const auto matrices = std::ssize(importance) / columns;
    ADZE_CHECK(matrices * columns == std::ssize(importance) && from.rows() % matrices == 0,
               "importance of {} values for '{}'", importance.size(), from.name);
    rows_of_matrix /= matrices;
  }

  // A few thousand values at a time: the weighted searches take microseconds for each block.
  constexpr std::int64_t kValuesAtOnce = 16 << 10;
  const std::int64_t rows_at_once = std::max<std::int64_t>(kValuesAtOnce / std::max<std::int64_t>(columns, 1), 1);
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> finite{true};
  const auto work = [&] {
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (std::int64_t begin = next.fetch_add(rows_at_once); begin < count; begin = next.fetch_add(rows_at_once)) {
      for (std::int64_t i = begin; i < std::min(begin + rows_at_once, count); ++i) {
        const std::int64_t row = first + i;
        tensor::dequantise_row(from, row, values.data());
        if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
          finite.store(false);
          return;
        }
        const float* weights = importance.empty() ? nullptr : importance.data() + row / rows_of_matrix * columns;
        tensor::quantise_row(type, values.data(), to + static_cast<std::size_t>(i) * row_bytes, columns, weights);
      }
    }
  };
  const std::int64_t pieces = (count + rows_at_once - 1) / rows_at_once;
  {
    std::vector<std::jthread> helpers;
    for (std::int64_t t = 1; t < std::min<std::int64_t>(threads, pieces); ++t) helpers.emplace_back(work);
    work();
  }
  if (!finite.load()) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("tensor '{}' holds a value that is not a finite number", from.name),
                "The file is damaged or was made wrongly; fetch or convert it again.");
  }
  return {};
}

Status produce_as(const tensor::TensorView& from, tensor::DType type, Importance importance, int threads,
                  const format::TensorSink& sink) {
  // A tensor may be in slices of their own: rows lie one behind the other within each.
  const std::int64_t slices = std::max<std::int64_t>(std::ssize(from.slices), 1), rows = from.rows() / slices;
  const std::size_t from_bytes = from.row_stride(), to_bytes = tensor::row_bytes(type, from.columns());
  const auto at_once = std::max<std::int64_t>(
      static_cast<std::int64_t>(kPieceBytes / std::max<std::size_t>({from_bytes, to_bytes, 1})), 1);
  std::vector<std::byte> piece;
  for (std::int64_t row = 0, count = 0; row < rows * slices; row += count) {
    count = std::min(at_once, rows - row % rows);
    if (type == from.type) {
      ADZE_TRY_STATUS(sink({from.row(row), static_cast<std::size_t>(count) * from_bytes}));
      continue;
    }
    piece.resize(static_cast<std::size_t>(count) * to_bytes);
    ADZE_TRY_STATUS(quantise_rows(from, row, count, type, importance, threads, piece.data()));
    ADZE_TRY_STATUS(sink(piece));
  }
  return {};
}

}  // namespace adze::quantise
