#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "backend/machine.hpp"
#include "base/suggest.hpp"
#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/engine_setup.hpp"
#include "cli/json_writer.hpp"
#include "cli/models.hpp"
#include "cli/version.hpp"

extern "C" char** environ;

namespace adze::cli {
namespace {

constexpr Option kOptions[] = {{"--json", "", "Print one JSON object", ""}};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::hub, SettingGroup::cache};

struct Report {
  struct Fact {
    std::string key;
    std::string value;
  };
  std::vector<Fact> facts;
  std::vector<Error> problems;

  void add(std::string key, std::string value) { facts.push_back({std::move(key), std::move(value)}); }
  void problem(std::string message, std::string hint) {
    problems.push_back({ErrorCode::invalid_argument, std::move(message), std::move(hint)});
  }
};

// A line of /proc/meminfo, in bytes.
std::optional<std::uint64_t> meminfo(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (std::string_view(name).substr(0, name.size() - 1) == key) return kilobytes * 1024;
  }
  return std::nullopt;
}

void look_at_machine(Report& report, const Settings& settings) {
  const backend::Machine machine = backend::describe_machine();
  report.add("backends", fmt::format("{}", fmt::join(machine.backends, " ")));
  report.add("processor", machine.processor);
  report.add("features", fmt::format("{}", fmt::join(machine.features, " ")));
  const auto counted = [](int count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  report.add("usable CPUs", fmt::format("{} ({} on {})", machine.usable_cpus, counted(machine.cores, "core"),
                                        counted(machine.nodes, "memory node")));
  report.add("threads", settings.threads > 0 ? fmt::format("{}, as set", settings.threads)
                                             : fmt::format("{}: {}", machine.threads, machine.threads_reason));
  report.add("kernel sets", fmt::format("{}", fmt::join(machine.kernel_sets, " ")));
  const auto chosen = backend::choose_kernel_set(kernel_set_of(settings));
  if (chosen) {
    report.add("chosen kernels", *chosen);
  } else {
    report.problems.push_back(chosen.error());
  }
}

void look_at_memory(Report& report) {
  const auto total = meminfo("MemTotal");
  const auto available = meminfo("MemAvailable");
  if (total && available) {
    report.add("memory", fmt::format("{} free of {}", format_bytes(*available), format_bytes(*total)));
    constexpr std::uint64_t kLittle = 512u << 20;
    if (*available < kLittle) {
      report.problem(fmt::format("only {} of memory are free", format_bytes(*available)), "Close other programs.");
    }
  }
}

// The folder, or what there is of its path; it must be ours to write in.
std::filesystem::path look_at_folder(Report& report, std::filesystem::path folder, std::string_view setting) {
  while (!std::filesystem::exists(folder) && folder.has_parent_path() && folder != folder.parent_path()) {
    folder = folder.parent_path();
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    report.problem(fmt::format("'{}' cannot be written", folder.string()),
                   fmt::format("Set {} to another place.", setting));
  }
  return folder;
}

void look_at_cache(Report& report, const Settings& settings) {
  const std::filesystem::path packs = pack_directory(settings);
  if (packs.empty()) {
    report.problem("neither HOME nor XDG_CACHE_HOME says where the cache directory is", "Set cache_dir.");
    return;
  }
  report.add("cache", packs.parent_path().string());
  look_at_folder(report, packs, "cache_dir");
}

void look_at_models(Report& report, const Context& context) {
  const auto directory = models_directory(context.settings());
  if (!directory) {
    report.problem(directory.error().message, directory.error().hint);
    return;
  }
  report.add("models", directory->string());
  const std::filesystem::path existing = look_at_folder(report, *directory, "models_dir");
  struct statvfs space{};
  if (::statvfs(existing.c_str(), &space) == 0) {
    report.add("free disk space", format_bytes(static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize));
  }
}

// A variable that looks like ours but is none does nothing, which is rarely what its author meant.
void look_at_environment(Report& report) {
  std::vector<std::string_view> known{"ADZE_CONFIG"};
  for (const SettingRow& row : setting_rows()) {
    const std::string_view first = row.environment.substr(0, row.environment.find(' '));
    if (!first.empty()) known.push_back(first);
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("ADZE_") || name.starts_with("ADZE_TEST_")) continue;
    if (std::ranges::find(known, name) != known.end()) continue;
    report.problem(fmt::format("the environment variable {} means nothing to Adze", name), did_you_mean(name, known));
  }
}

Result<ExitCode> run_doctor(Context& context) {
  Report report;
  report.add("version", std::string(version()));
  look_at_machine(report, context.settings());
  look_at_memory(report);
  look_at_models(report, context);
  look_at_cache(report, context.settings());
  look_at_environment(report);
  if (context.arguments.has("json")) {
    JsonWriter json;
    json.begin_object();
    for (const Report::Fact& fact : report.facts) json.field(fact.key, fact.value);
    json.key("problems").begin_array();
    for (const Error& problem : report.problems) {
      json.begin_object().field("message", problem.message).field("hint", problem.hint).end_object();
    }
    context.console.print(json.end_array().end_object().take());
  } else {
    for (const Report::Fact& fact : report.facts)
      context.console.print(fmt::format("{:<16} {}\n", fact.key, fact.value));
    for (const Error& problem : report.problems) {
      context.console.print(fmt::format("\nproblem: {}\n", problem.message));
      if (!problem.hint.empty()) context.console.print(fmt::format("  {}\n", problem.hint));
    }
    if (report.problems.empty()) context.console.print("\nall is well\n");
  }
  return report.problems.empty() ? ExitCode::ok : ExitCode::internal;
}

}  // namespace

constinit const Command kDoctor{
    .name = "doctor",
    .summary = "Show what this machine offers and what would be chosen",
    .description =
        "Shows the processor's features, the kernel sets and the one that would "
        "be chosen, memory, and the directories of models and of the cache. Exit code 1 when something "
        "is wrong.",
    .positionals = {},
    .options = kOptions,
    .settings = kSettings,
    .examples = {},
    .run = run_doctor};

}  // namespace adze::cli
