// Rounds activations to int8 for the products that read them, in the forms that a buffer has: whole rows, or the blocks
// whose columns a member has completed. The bits are the same.
#pragma once

#include "backend/cpu/countdown.hpp"
#include "backend/cpu/cpu_scratch.hpp"

namespace adze::cpu {

// Some of a buffer's rows that are completed together. Their tiles are those of `of` rows.
struct RowSet {
  int first, count, of;
  std::size_t first_unit;  // of the buffer's counters, block_units(width) of them; other sets in flight have others
};

class Rounding {
 public:
  Rounding(const KernelTable& table, const Tuning& tuning) : table_(table), tuning_(tuning) {}

  // Row `row` of `rows`; its values may stand elsewhere.
  void row(const ActivationBuffer& b, int row, int rows) const { this->row(b, row, rows, b.row(row)); }
  void row(const ActivationBuffer& b, int row, int rows, const float* values) const;

  // A member has completed the columns [begin, end) of these rows: whoever completes a block rounds it.
  void columns(const ActivationBuffer& b, const RowSet& rows, int begin, int end) const;

 private:
  template <class Kernel>
  void blocks(const ActivationBuffer& b, const QuantisedRows& to, int block, Kernel kernel, const RowSet& rows,
              int begin, int end, std::size_t first_unit) const;

  const KernelTable& table_;
  const Tuning& tuning_;  // of the tiles that the products will read
};

}  // namespace adze::cpu
