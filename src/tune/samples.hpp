// Times of candidates that were measured in turns, round by round, and what can be said of them: a machine with
// neighbours changes its speed from second to second, so only candidates of one round are compared.
#pragma once

#include <vector>

namespace adze::tune {

double median(std::vector<double> values);  // 0 of none

// How many times as fast one candidate is as another, over rounds.
struct Ratio {
  double median = 1.0;
  double error = 0.0;  // of the median, one standard deviation
  // Whether it is faster by `factor` at least, with three standard deviations to spare: dozens are compared, and a
  // smaller margin would choose one of them by chance.
  bool exceeds(double factor) const { return median - 3.0 * error >= factor; }
};

// Seconds of both, round by round; as many of each. Too few rounds to tell the noise (less than three) give an error of
// 1.
Ratio speed_ratio(const std::vector<double>& slower, const std::vector<double>& faster);

}  // namespace adze::tune
