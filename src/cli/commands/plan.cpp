#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"MODEL", "A model file or folder, or the name of a pulled model (adze list)"}};
constexpr Option kOptions[] = {{"--json", "", "Print the same as JSON", ""}};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::hub, SettingGroup::cache};

Result<ExitCode> run_plan(Context& context) {
  ADZE_TRY(const Engine engine, load_engine(context));
  std::string text = context.arguments.has("json") ? engine.plan_json() : engine.plan_text();
  if (!text.ends_with('\n')) text += '\n';
  context.console.print(text);
  return ExitCode::ok;
}

}  // namespace

constinit const Command kPlan{.name = "plan",
                              .summary = "Show the steps of a model and the kernel chosen for each",
                              .description =
                                  "Shows the Plan that the model's family wrote, the dispatches that the "
                                  "backend made of it with the steps that each covers and why, how often all "
                                  "threads meet, the kernel chosen for each dispatch, and the digest of that "
                                  "route.",
                              .positionals = kPositionals,
                              .options = kOptions,
                              .settings = kSettings,
                              .examples = {},
                              .run = run_plan};

}  // namespace adze::cli
