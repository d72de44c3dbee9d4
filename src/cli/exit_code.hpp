// What the program's exit status says. Scripts rely on the numbers (docs/exit-codes.md): they never change meaning.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.hpp"

namespace adze::cli {

enum class ExitCode : std::uint8_t {
  ok = 0,
  internal = 1,
  usage = 2,
  not_found = 3,
  bad_file = 4,
  does_not_fit = 5,
  network = 6,
  io = 7,
  model_fault = 8,
  interrupted = 130,
};

struct ExitCodeRow {
  ExitCode code;
  std::string_view meaning;
};
// Every code with what it means, for --help, the man page and docs/exit-codes.md.
std::span<const ExitCodeRow> exit_code_rows();

ExitCode exit_code_for(ErrorCode error);

}  // namespace adze::cli
