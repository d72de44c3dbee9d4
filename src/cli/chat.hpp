// The interactive chat of `adze run MODEL`.
#pragma once

#include "adze/adze.hpp"
#include "base/result.hpp"
#include "cli/context.hpp"

namespace adze::cli {

// Talks until /quit or the end of input. Ctrl-C ends an answer, or empties the line, never the program. What goes wrong
// with one turn is reported and the chat goes on.
Result<ExitCode> chat(Context& context, Engine& engine, Conversation& conversation);

}  // namespace adze::cli
