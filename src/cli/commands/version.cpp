#include "cli/version.hpp"

#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"

namespace adze::cli {

std::string_view version() { return ADZE_VERSION; }

namespace {

Result<ExitCode> run_version(Context& context) {
  context.console.print(fmt::format("adze {}\n", version()));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kVersion{.name = "version",
                                 .summary = "Print the version",
                                 .description = {},
                                 .positionals = {},
                                 .options = {},
                                 .settings = {},
                                 .examples = {},
                                 .run = run_version};

}  // namespace adze::cli
