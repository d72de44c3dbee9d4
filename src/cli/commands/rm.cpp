#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/models.hpp"
#include "hub/store.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"MODEL", "The name of a pulled model (adze list)"}};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};

Result<ExitCode> run_rm(Context& context) {
  ADZE_TRY(const std::filesystem::path directory, models_directory(context.settings()));
  ADZE_TRY(const hub::StoredModel model, hub::remove_model(directory, *context.arguments.positional(0)));
  context.console.note(model.linked ? fmt::format("removed the link {}; its file stays in the hub's cache", model.name)
                                    : fmt::format("removed {}, {}", model.name, format_bytes(model.bytes)));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kRemove{.name = "rm",
                                .summary = "Remove a pulled model",
                                .description = {},
                                .positionals = kPositionals,
                                .options = {},
                                .settings = kSettings,
                                .examples = {},
                                .run = run_rm};

}  // namespace adze::cli
