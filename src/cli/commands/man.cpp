#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/help.hpp"

namespace adze::cli {
namespace {

constexpr Example kExamples[] = {{"adze man | man -l -", "Read the manual page without installing it"}};

Result<ExitCode> run_man(Context& context) {
  context.console.print(man_page());
  return ExitCode::ok;
}

}  // namespace

constinit const Command kMan{.name = "man",
                             .summary = "Print the manual page (roff)",
                             .description = {},
                             .positionals = {},
                             .options = {},
                             .settings = {},
                             .examples = kExamples,
                             .run = run_man};

}  // namespace adze::cli
