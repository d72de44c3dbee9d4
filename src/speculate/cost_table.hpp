// What a forward pass costs, by its rows and by how long a text stands behind them. Only ratios matter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace adze::speculate {

// A pass of `rows` rows: behind next to nothing, and behind the table's far context. Any unit; 0: not measured.
struct CostPoint {
  int rows = 0;
  double near = 0, far = 0;
};

class CostTable {
 public:
  // For a machine that nobody has measured.
  static CostTable built_in();
  // `far_context`: positions behind which CostPoint::far was measured; 0: nowhere. Points of no rows or of no cost are
  // passed over, a cost below that of fewer rows counts as that one; without any point that is left: built_in().
  static CostTable from_points(std::span<const CostPoint> points, std::int64_t far_context);

  // Positive, and never less for more rows or for a longer context. Between two points in proportion, beyond the last
  // as between the last two; attention's part grows in proportion to the context.
  double of(int rows, std::int64_t context = 0) const;

 private:
  std::vector<CostPoint> points_;  // ascending by rows, never empty
  std::int64_t far_context_ = 0;   // 0: the context is not known to cost anything
};

}  // namespace adze::speculate
