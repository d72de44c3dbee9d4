#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/help.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"SHELL", "bash, zsh or fish"}};
constexpr Example kExamples[] = {{"source <(adze completion bash)", "Complete in this shell"}};

Result<ExitCode> run_completion(Context& context) {
  ADZE_TRY(const std::string script, completion_script(*context.arguments.positional(0)));
  context.console.print(script);
  return ExitCode::ok;
}

}  // namespace

constinit const Command kCompletion{.name = "completion",
                                    .summary = "Print a completion script for bash, zsh or fish",
                                    .description = {},
                                    .positionals = kPositionals,
                                    .options = {},
                                    .settings = {},
                                    .examples = kExamples,
                                    .run = run_completion};

}  // namespace adze::cli
