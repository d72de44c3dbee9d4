// `adze bench model`: the rates of a model on this machine, beside its limits and, if asked for, beside a peer.
#pragma once

#include "cli/context.hpp"
#include "cli/exit_code.hpp"

namespace adze::cli::bench {

// MODEL is the second positional. Errors: those of the engine, of find_peer() and run_peer(), and of the options.
Result<ExitCode> bench_model(Context& context);

}  // namespace adze::cli::bench
