#include "hub/pull.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/interrupt.hpp"
#include "cli/json_writer.hpp"
#include "cli/models.hpp"
#include "hub/hub_cache.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"SOURCE", "smollm2, hf:ORG/REPO/FILE, or the URL of a model file"}};
constexpr Option kOptions[] = {
    {"--sha256", "HEX", "Accept only a file with this SHA-256", ""},
    {"--retries", "N", "Tries in a row that bring nothing before it gives up (default 4)", ""},
    {"--json", "", "Print one JSON object: name, path, bytes, what was done", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};
constexpr Example kExamples[] = {
    {"adze pull smollm2", "SmolLM2-135M-Instruct, 98 MB, Apache-2.0"},
    {"adze pull hf:ORG/REPO/model-Q4_K_M.gguf", "A file of the hub; one that is in its cache already is linked"},
};

std::string_view stage_name(hub::Stage stage) {
  switch (stage) {
    case hub::Stage::fetching: return "fetching";
    case hub::Stage::unpacking: return "unpacking";
    case hub::Stage::verifying: return "verifying";
    case hub::Stage::waiting: return "waiting to try again:";
  }
  return "";
}

std::string_view kind_name(hub::PullKind kind) {
  switch (kind) {
    case hub::PullKind::fetched: return "fetched";
    case hub::PullKind::already_there: return "already there";
    case hub::PullKind::linked_from_cache: return "linked from the hub's cache";
  }
  return "";
}

Result<ExitCode> run_pull(Context& context) {
  const Settings& settings = context.settings();
  hub::PullOptions options;
  ADZE_TRY(options.models_dir, models_directory(settings));
  options.hub_cache = hub::hub_cache_directory(environment_variable);
  options.hub_endpoint = settings.hub_endpoint;
  options.hub_token = settings.hub_token;
  options.sha256 = context.arguments.value("sha256").value_or("");
  if (const auto retries = context.arguments.value("retries")) {
    ADZE_TRY(options.retries, parse_count("--retries", *retries, 0, 100));
  }
  watch_interrupts();
  ADZE_TRY(const hub::Pulled pulled,
           hub::pull(*context.arguments.positional(0), options, [&](const hub::Progress& progress) {
             context.console.progress(fmt::format("{} {}", stage_name(progress.stage), progress.file), progress.done,
                                      progress.total);
             return !interrupted();
           }));
  context.console.end_progress();
  if (context.arguments.has("json")) {
    JsonWriter json;
    json.begin_object()
        .field("name", pulled.model.name)
        .field("path", pulled.path.string())
        .field("bytes", pulled.model.bytes)
        .field("done", kind_name(pulled.kind))
        .end_object();
    context.console.print(json.take());
  } else {
    context.console.note(fmt::format("{}: {}, {} in {}", pulled.model.name, kind_name(pulled.kind),
                                     format_bytes(pulled.model.bytes), pulled.path.string()));
  }
  return ExitCode::ok;
}

}  // namespace

constinit const Command kPull{.name = "pull",
                              .summary = "Fetch a model",
                              .description =
                                  "Fetches a model into the models directory. A download that was broken "
                                  "off goes on where it stopped; a file gets its name only when it is "
                                  "whole and, where its SHA-256 is known, right.",
                              .positionals = kPositionals,
                              .options = kOptions,
                              .settings = kSettings,
                              .examples = kExamples,
                              .run = run_pull};

}  // namespace adze::cli
