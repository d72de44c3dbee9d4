#include "backend/cpu/cpu_rounding.hpp"

#include <algorithm>

namespace adze::cpu {
namespace {

// The int8 rows of a tile from a column on: inside a tile all lies side by side, so that blocks of some columns are a
// smaller tile of the same form.
QuantisedRows from_column(const QuantisedRows& x, Tile tile, int width, int column, int block) {
  const auto at = static_cast<std::size_t>(tile.first) * static_cast<std::size_t>(width) +
                  static_cast<std::size_t>(column) * static_cast<std::size_t>(tile.count);
  const auto size = static_cast<std::size_t>(block);
  return {x.quants + at, x.scales + at / size, x.scaled_sums + at / size, x.sums + at / (block == 32 ? 32 : 16)};
}

}  // namespace

void Rounding::row(const ActivationBuffer& b, int row, int rows, const float* values) const {
  const Tile tile = tile_of(row, rows, tuning_.max_tile());
  if (b.int8_32.quants != nullptr) table_.quantise32(values, b.width, b.int8_32, row, tile);
  if (b.int8_256.quants != nullptr) table_.quantise256(values, b.width, b.int8_256, row, tile);
}

void Rounding::columns(const ActivationBuffer& b, const RowSet& rows, int begin, int end) const {
  if (begin >= end) return;
  if (b.int8_32.quants != nullptr) blocks(b, b.int8_32, 32, table_.quantise32, rows, begin, end, rows.first_unit);
  if (b.int8_256.quants != nullptr) {
    const std::size_t unit = rows.first_unit + static_cast<std::size_t>(b.width / 32);
    blocks(b, b.int8_256, 256, table_.quantise256, rows, begin, end, unit);
  }
}

template <class Kernel>
void Rounding::blocks(const ActivationBuffer& b, const QuantisedRows& to, int block, Kernel kernel, const RowSet& rows,
                      int begin, int end, std::size_t first_unit) const {
  // At the two ends there may be blocks that somebody else has a part of.
  const auto complete = [&](int at) {
    const int part = std::min(end, at + block) - std::max(begin, at);
    return b.blocks.complete(first_unit + static_cast<std::size_t>(at / block), part, block);
  };
  int from = begin / block * block, to_column = (end + block - 1) / block * block;
  if (!complete(from)) from += block;
  if (to_column - block > begin / block * block && !complete(to_column - block)) to_column -= block;
  if (from >= to_column) return;
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    const Tile tile = tile_of(r, rows.of, tuning_.max_tile());
    kernel(b.row(r) + from, to_column - from, from_column(to, tile, b.width, from, block), r - tile.first,
           {0, tile.count});
  }
}

}  // namespace adze::cpu
