#include "tune/samples.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace adze::tune {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

Ratio speed_ratio(const std::vector<double>& slower, const std::vector<double>& faster) {
  ADZE_CHECK(slower.size() == faster.size(), "{} and {} rounds", slower.size(), faster.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < slower.size(); ++i) {
    if (faster[i] > 0.0) ratios.push_back(slower[i] / faster[i]);
  }
  Ratio ratio;
  if (ratios.size() < 3) return {.median = ratios.empty() ? 1.0 : median(ratios), .error = 1.0};
  ratio.median = median(ratios);
  // Of the middle of the rounds, not of all: one round with a time slice lost says nothing of the others. 1.4826 makes
  // a standard deviation of a median deviation, 1.2533 that of a median of one of a mean.
  std::vector<double> deviations;
  for (const double r : ratios) deviations.push_back(std::fabs(r - ratio.median));
  ratio.error = 1.2533 * 1.4826 * median(deviations) / std::sqrt(static_cast<double>(ratios.size()));
  return ratio;
}

}  // namespace adze::tune
