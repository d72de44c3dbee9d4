#include <fmt/format.h>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/json_writer.hpp"
#include "cli/models.hpp"
#include "hub/store.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"NAME", "Only this model; exit code 3 when it is not there", false}};
constexpr Option kOptions[] = {
    {"--names", "", "Print names only, one per line", ""},
    {"--path", "", "Print paths only, one per line", ""},
    {"--json", "", "Print a JSON array", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};

std::string as_json(const std::vector<hub::StoredModel>& models) {
  JsonWriter json;
  json.begin_array();
  for (const hub::StoredModel& model : models) {
    json.begin_object().field("name", model.name).field("bytes", model.bytes).field("linked", model.linked);
    json.key("files").begin_array();
    for (const auto& file : model.files) json.value(file.string());
    json.end_array().end_object();
  }
  return json.end_array().take();
}

Result<ExitCode> run_list(Context& context) {
  ADZE_TRY(const std::filesystem::path directory, models_directory(context.settings()));
  std::vector<hub::StoredModel> models;
  if (const auto name = context.arguments.positional(0)) {
    ADZE_TRY(hub::StoredModel model, hub::find_model(directory, *name));
    models.push_back(std::move(model));
  } else {
    models = hub::list_models(directory);
  }
  if (context.arguments.has("json")) {
    context.console.print(as_json(models));
    return ExitCode::ok;
  }
  for (const hub::StoredModel& model : models) {
    if (context.arguments.has("names")) {
      context.console.print(fmt::format("{}\n", model.name));
    } else if (context.arguments.has("path")) {
      context.console.print(fmt::format("{}\n", model.path.string()));
    } else {
      context.console.print(fmt::format("{:<40} {:>10}  {}{}\n", model.name, format_bytes(model.bytes),
                                        model.path.string(), model.linked ? " (link)" : ""));
    }
  }
  if (models.empty()) context.console.note(fmt::format("no models in {}; adze pull smollm2", directory.string()));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kList{.name = "list",
                              .summary = "List the pulled models",
                              .description = {},
                              .positionals = kPositionals,
                              .options = kOptions,
                              .settings = kSettings,
                              .examples = {},
                              .run = run_list};

}  // namespace adze::cli
