// Passes over rows of one sequence, to be measured: at the start of a context and behind a long one, which is really
// computed, so that attention reads pages that are there. One thread; the prepared plan serves nobody else meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/backend.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::tune {

class Workload {
 public:
  // `positions`: that the pages of the prepared plan hold, from page 0 on. `max_rows`: of a pass. `now`: seconds.
  Workload(backend::Prepared& prepared, const ops::Plan& plan, int positions, int max_rows,
           std::function<double()> now);

  // The next passes stand behind `depth` positions. Errors: those of run().
  Status move_to(int depth);
  // Positions from `depth` on that passes use in turn before they begin at `depth` again.
  static constexpr int kRoom = 512;

  // Computes the next `rows` rows: of a few, all logits; of many, as of a prompt that goes on, none. Seconds.
  Result<double> pass(int rows);
  // A prompt of so many tokens in passes of `chunk` rows, with the last one's logits; the next pass begins at 0.
  Result<double> prompt(int tokens, int chunk);

 private:
  Result<double> run(int rows, int first_wanted);

  backend::Prepared& prepared_;
  const ops::Plan& plan_;
  const int positions_, max_rows_;
  const bool recurrent_;
  std::vector<std::int32_t> pages_;
  std::vector<backend::Row> rows_;
  const std::function<double()> now_;
  int depth_ = 0, at_ = 0;  // `at_`: the next row's position
  int computed_ = 0;        // positions that hold something
};

}  // namespace adze::tune
