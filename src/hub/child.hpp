// A child process, run to its end: what it says is kept (the last of it), its standard input is empty.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace adze::hub {

struct ChildOutcome {
  int exit_status = 0;  // 128 + signal where a signal ended it
  std::string output;   // on stdout, and on stderr; of each at most the last limits::kMaxToolOutputBytes
  std::string errors;
};

// `environment` is added to this process's own. `tick` is called several times a second; false terminates the child, at
// last by force, and gives ErrorCode::cancelled. Its own children end with it. Errors: not_found when there is no such
// program, io, cancelled.
Result<ChildOutcome> run_child(const std::vector<std::string>& arguments,
                               const std::vector<std::pair<std::string, std::string>>& environment,
                               const std::function<bool()>& tick);

}  // namespace adze::hub
