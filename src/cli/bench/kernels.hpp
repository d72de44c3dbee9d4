// `adze bench kernels`: products of each weight type and attention, alone, as a share of the limits measured in the
// same run. `adze bench limits`: those limits.
#pragma once

#include "cli/context.hpp"
#include "cli/exit_code.hpp"

namespace adze::cli::bench {

// Positionals from the second on name weight types. Errors: invalid_argument, and the backend's.
Result<ExitCode> bench_kernels(Context& context);
Result<ExitCode> bench_limits(Context& context);

}  // namespace adze::cli::bench
