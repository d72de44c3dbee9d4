#include "speculate/cost_table.hpp"

#include <algorithm>
#include <array>

namespace adze::speculate {
namespace {

// `value` of a line through (a, va) and (b, vb), a < b.
double on_line(int at, int a, double va, int b, double vb) {
  return va + (vb - va) * static_cast<double>(at - a) / static_cast<double>(b - a);
}

}  // namespace

// SmolLM2-135M at Q4_1 on two cores of a Sapphire Rapids, in milliseconds: one row reads every weight once and four
// cost little more; from there on they cost arithmetic. Behind 4,096 positions every row reads them all.
CostTable CostTable::built_in() {
  constexpr std::array<CostPoint, 3> kPoints{{{.rows = 1, .near = 4.0, .far = 9.3},
                                              {.rows = 4, .near = 5.0, .far = 17.9},
                                              {.rows = 16, .near = 11.0, .far = 41.3}}};
  return from_points(kPoints, 4096);
}

CostTable CostTable::from_points(std::span<const CostPoint> points, std::int64_t far_context) {
  CostTable table;
  for (const CostPoint& p : points) {
    if (p.rows > 0 && p.near > 0) table.points_.push_back(p);
  }
  if (table.points_.empty()) return built_in();
  std::ranges::stable_sort(table.points_, {}, &CostPoint::rows);
  const auto repeated = std::ranges::unique(table.points_, {}, &CostPoint::rows);
  table.points_.erase(repeated.begin(), repeated.end());
  // The far costs count only where all were measured: a line needs both of its ends.
  const bool far = far_context > 0 && std::ranges::all_of(table.points_, [](const CostPoint& p) { return p.far > 0; });
  table.far_context_ = far ? far_context : 0;
  CostPoint least{};
  double attention = 0;  // what the far context adds grows with the rows as well
  for (CostPoint& p : table.points_) {
    p.near = std::max(p.near, least.near);
    attention = std::max(attention, far ? p.far - p.near : 0.0);
    p.far = p.near + attention;
    least = p;
  }
  return table;
}

double CostTable::of(int rows, std::int64_t context) const {
  const auto cost = [&](const CostPoint& p) {
    if (far_context_ == 0 || context <= 0) return p.near;
    return p.near + (p.far - p.near) * static_cast<double>(context) / static_cast<double>(far_context_);
  };
  if (points_.size() == 1 || rows <= points_.front().rows) return cost(points_.front());
  auto above = std::ranges::lower_bound(points_, rows, {}, &CostPoint::rows);
  if (above == points_.end()) --above;
  const CostPoint& b = *above;
  const CostPoint& a = *(above - 1);
  return on_line(rows, a.rows, cost(a), b.rows, cost(b));
}

}  // namespace adze::speculate
