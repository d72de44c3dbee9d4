#include "quantise/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "base/check.hpp"

namespace adze::quantise {
namespace {

// What is wrong with some rows, the worst of it.
enum class Fault : std::uint8_t { none, too_large, not_finite };

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

float largest_of(std::span<const float> values) {
  float largest = 0.0f;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// Calls work(row, values) for rows [0, count) on as many threads as are asked for; `values` [columns] is the thread's
// own. Stops soon after a fault.
template <class Work>
Fault for_each_row(std::int64_t count, std::int64_t columns, int threads, const Work& work) {
  // A few thousand values at a time: the weighted searches take microseconds for each block.
  constexpr std::int64_t kValuesAtOnce = 16 << 10;
  const std::int64_t rows_at_once = std::max<std::int64_t>(kValuesAtOnce / std::max<std::int64_t>(columns, 1), 1);
  std::atomic<std::int64_t> next{0};
  std::atomic<Fault> fault{Fault::none};
  const auto run = [&] {
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (std::int64_t begin = next.fetch_add(rows_at_once); begin < count; begin = next.fetch_add(rows_at_once)) {
      for (std::int64_t i = begin; i < std::min(begin + rows_at_once, count); ++i) {
        const Fault found = work(i, std::span<float>(values));
        if (found == Fault::none) continue;
        fault.store(found);
        return;
      }
      if (fault.load() != Fault::none) return;
    }
  };
  const std::int64_t pieces = (count + rows_at_once - 1) / rows_at_once;
  {
    std::vector<std::jthread> helpers;
    for (std::int64_t t = 1; t < std::min<std::int64_t>(threads, pieces); ++t) helpers.emplace_back(run);
    run();
  }
  return fault.load();
}

Status report(Fault fault, const tensor::TensorView& from, tensor::DType type) {
  switch (fault) {
    case Fault::none: return {};
    case Fault::too_large:
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("tensor '{}' holds values that are too large for {}", from.name, tensor::dtype_info(type).name),
          "Give it a type with that range: BF16 or F32.");
    case Fault::not_finite:
      return fail(ErrorCode::corrupt_file,
                  fmt::format("tensor '{}' holds a value that is not a finite number", from.name),
                  "The file is damaged or was made wrongly; fetch or convert it again.");
  }
  return {};
}

// Rows that are handed on as they are.
Status check_rows(const tensor::TensorView& from, std::int64_t first, std::int64_t count, int threads) {
  if (!tensor::dtype_info(from.type).is_weight()) return {};
  const Fault fault = for_each_row(count, from.columns(), threads, [&](std::int64_t i, std::span<float> values) {
    tensor::dequantise_row(from, first + i, values.data());
    return all_finite(values) ? Fault::none : Fault::not_finite;
  });
  return report(fault, from, from.type);
}

}  // namespace

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
  // Scales and minima of blocks are at most a few times the largest value: below an eighth of float16's range all of
  // them are finite. Real weights are smaller by far, so that hardly a row is read back.
  constexpr float kSurelyFits = 8192.0f;
  const Fault fault = for_each_row(count, columns, threads, [&](std::int64_t i, std::span<float> values) {
    const std::int64_t row = first + i;
    tensor::dequantise_row(from, row, values.data());
    if (!all_finite(values)) return Fault::not_finite;
    const bool is_large = largest_of(values) > kSurelyFits;
    const float* weights = importance.empty() ? nullptr : importance.data() + row / rows_of_matrix * columns;
    std::byte* const out = to + static_cast<std::size_t>(i) * row_bytes;
    tensor::quantise_row(type, values.data(), out, columns, weights);
    if (!is_large) return Fault::none;
    tensor::dequantise_row(type, out, values.data(), columns);
    return all_finite(values) ? Fault::none : Fault::too_large;
  });
  return report(fault, from, type);
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
      ADZE_TRY_STATUS(check_rows(from, row, count, threads));
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
