#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"MODEL", "A model file or folder, or the name of a pulled model (adze list)"}};
constexpr Option kOptions[] = {{"--quick", "", "Measure for about 25 seconds instead of a minute", ""},
                               {"--json", "", "Print all that was measured as JSON", ""}};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::cache, SettingGroup::hub};
constexpr Example kExamples[] = {{"adze tune smollm2", "measures, and from then on runs smollm2 with what was fastest"},
                                 {"adze plan smollm2", "shows what the profile chose, and what the built-in rules"}};
constexpr double kSeconds = 45.0, kQuickSeconds = 10.0;

Result<ExitCode> run_tune(Context& context) {
  ADZE_TRY(const std::filesystem::path path, find_model(context, *context.arguments.positional(0)));
  if (context.settings().profile == "off") {
    return fail(ErrorCode::invalid_argument, "--profile off: adze tune writes a profile",
                "Leave it out, or name the file.");
  }
  LoadOptions options = load_options(context.settings(), {});
  if (options.profile_directory.empty() && options.profile_file.empty()) {
    return fail(ErrorCode::not_found, "neither HOME nor XDG_CACHE_HOME says where profiles are kept",
                "Name a file with --profile FILE.");
  }
  watch_interrupts();
  TuneOptions how{.seconds = context.arguments.has("quick") ? kQuickSeconds : kSeconds};
  how.packing = [&](std::uint64_t done, std::uint64_t total) { return show_packing(context.console, done, total); };
  how.progress = [&](double share) {
    context.console.progress("tune", share);
    return !interrupted();
  };
  auto report = tune_model(path, options, how);
  context.console.end_progress();
  if (!report) return tl::unexpected(std::move(report.error()));
  context.console.print(context.arguments.has("json") ? report->json : report->text);
  context.console.note(fmt::format("profile written to {}", report->path.string()));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kTune{
    .name = "tune",
    .summary = "Measure which kernels and threads are fastest for a model here",
    .description =
        "Runs forward passes of the model with each of the candidates in turns, at short and long contexts, "
        "of one row, a few and many, and writes what was faster than the built-in rules by 2 % at least as "
        "a profile, which is used from then on. No choice changes a result. A profile is for one model, "
        "processor and version of adze; measure on a machine that does nothing else.",
    .positionals = kPositionals,
    .options = kOptions,
    .settings = kSettings,
    .examples = kExamples,
    .run = run_tune};

}  // namespace adze::cli
