// `adze bench contract FILE`, `adze bench compare A B` and `adze bench baseline RESULT NAME`.
#pragma once

#include "cli/context.hpp"
#include "cli/exit_code.hpp"

namespace adze::cli::contract {

// The exit codes of these three, for scripts: 0 pass, 1 usage or infrastructure, 2 the contract file is bad, 3 an
// answer is wrong or not repeated, 4 too slow. They report their errors themselves, to keep to these.
ExitCode bench_contract(Context& context);
ExitCode bench_compare(Context& context);
ExitCode bench_baseline(Context& context);

}  // namespace adze::cli::contract
