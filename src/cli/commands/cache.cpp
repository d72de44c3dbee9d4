// What Adze keeps for itself between starts. So far: packed weights.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>
#include <system_error>
#include <vector>

#include "backend/pack_directory.hpp"
#include "base/file.hpp"
#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"

namespace adze::cli {
namespace {

using backend::StoredPack;

constexpr Positional kPositionals[] = {
    {"WHAT", "packs"},
    {"NAME", "Only the packs of this model (its name or file), or the one whose file begins like this", false},
};
constexpr Option kOptions[] = {
    {"--clear", "", "Remove them; running programs keep what they have", ""},
    {"--verify", "", "Read them whole and compare them with their checksums", ""},
    {"--make", "", "Pack the weights of model NAME now, instead of while it first runs", ""},
    {"--json", "", "Print a JSON array", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::cache, SettingGroup::engine, SettingGroup::hub};
constexpr Example kExamples[] = {
    {"adze cache packs", "Every model's packed weights, their size, and when they were last used"},
    {"adze cache packs --clear smollm2", "Remove those of one model; they are made again when it runs"},
    {"adze cache packs --make smollm2", "Pack ahead of time, for an image or a read-only disk"},
};

std::time_t last_used(const StoredPack& pack) {
  const auto time = std::chrono::file_clock::to_sys(pack.last_used);
  return std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::system_clock::duration>(time));
}

std::string date_of(const StoredPack& pack) {
  const std::time_t time = last_used(pack);
  std::tm local{};
  ::localtime_r(&time, &local);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local));
}

bool made_from(const StoredPack& pack, const std::filesystem::path& model) {
  std::error_code ignored;
  const auto plain = [&](const std::filesystem::path& path) {
    return std::filesystem::absolute(path, ignored).lexically_normal();
  };
  return std::ranges::any_of(pack.header.sources, [&](const backend::PackSource& source) {
    const std::filesystem::path file = plain(source.path);
    return file == plain(model) || file.parent_path() == plain(model / "").parent_path();
  });
}

// All; or those made from the model that NAME is; or, where it is none here, those of a model that calls itself so, or
// the one whose file begins like this. Errors: invalid_argument, not_found.
Result<std::vector<StoredPack>> chosen_packs(const Context& context, const std::filesystem::path& directory) {
  ADZE_TRY(std::vector<StoredPack> packs, backend::list_packs(directory));
  const auto name = context.arguments.positional(1);
  if (!name) return packs;
  if (name->empty()) return fail(ErrorCode::invalid_argument, "NAME is empty", "Leave it out for all packs.");
  const auto keep = [&](const auto& wanted) {
    std::vector<StoredPack> kept;
    std::ranges::copy_if(packs, std::back_inserter(kept), wanted);
    return kept;
  };
  if (const auto model = find_model(context, *name)) {
    packs = keep([&](const StoredPack& pack) { return made_from(pack, *model); });
  } else if (auto called = keep([&](const StoredPack& pack) { return pack.header.model == *name; }); !called.empty()) {
    packs = std::move(called);
  } else {
    packs = keep([&](const StoredPack& pack) { return pack.path.filename().string().starts_with(*name); });
    if (packs.size() > 1) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("the files of {} packs begin with '{}'", packs.size(), *name), "Give more of the name.");
    }
  }
  if (packs.empty()) {
    return fail(ErrorCode::not_found, fmt::format("there are no packed weights of '{}'", *name),
                "adze cache packs lists what there is.");
  }
  return packs;
}

std::string as_json(const std::vector<StoredPack>& packs) {
  JsonWriter json;
  json.begin_array();
  for (const StoredPack& pack : packs) {
    json.begin_object()
        .field("model", pack.header.model)
        .field("layout", pack.header.layout)
        .field("bytes", pack.bytes)
        .field("last_used", static_cast<std::int64_t>(last_used(pack)))
        .field("condition", backend::condition_name(pack.condition))
        .field("path", pack.path.string());
    json.key("sources").begin_array();
    for (const backend::PackSource& source : pack.header.sources) json.value(source.path.string());
    json.end_array().end_object();
  }
  return json.end_array().take();
}

ExitCode list(Context& context, const std::vector<StoredPack>& packs, const std::filesystem::path& directory) {
  if (context.arguments.has("json")) {
    context.console.print(as_json(packs));
    return ExitCode::ok;
  }
  std::uint64_t total = 0;
  for (const StoredPack& pack : packs) {
    total += pack.bytes;
    const bool known = !pack.header.sources.empty();
    context.console.print(fmt::format(
        "{:>9}  {}  {:<8}  {:<12}  {}  {}\n", format_bytes(pack.bytes), date_of(pack),
        backend::condition_name(pack.condition), pack.header.layout, pack.header.model,
        without_controls(known ? pack.header.sources.front().path.string() : pack.path.filename().string())));
  }
  context.console.note(
      packs.empty()
          ? fmt::format("no packed weights in {}; a model's are made while it first runs", directory.string())
          : fmt::format("{} of {} GB in {}", format_bytes(total), context.settings().pack_budget, directory.string()));
  return ExitCode::ok;
}

Result<ExitCode> clear(Context& context, const std::vector<StoredPack>& packs) {
  std::uint64_t total = 0;
  for (const StoredPack& pack : packs) {
    std::error_code error;
    std::filesystem::remove(pack.path, error);
    if (error) return tl::unexpected(errno_error(error.value(), "remove", pack.path));
    total += pack.bytes;
  }
  context.console.note(
      fmt::format("removed {} pack{}, {}", packs.size(), packs.size() == 1 ? "" : "s", format_bytes(total)));
  return ExitCode::ok;
}

Result<ExitCode> verify(Context& context, const std::vector<StoredPack>& packs) {
  watch_interrupts();
  int damaged = 0;
  for (const StoredPack& pack : packs) {
    const Status status = backend::verify_pack(pack.path, [] { return !interrupted(); });
    if (interrupted()) return ExitCode::interrupted;
    damaged += status ? 0 : 1;
    context.console.print(fmt::format("{}  {}  {}\n", pack.path.filename().string(), pack.header.model,
                                      status ? std::string("ok") : status.error().message));
  }
  if (damaged == 0) return ExitCode::ok;
  return fail(ErrorCode::corrupt_file, fmt::format("{} of {} packs cannot be trusted", damaged, packs.size()),
              "Remove them with adze cache packs --clear; they are made again.");
}

Result<ExitCode> make(Context& context) {
  ADZE_TRY(const std::string name, required_positional(context, 1));
  ADZE_TRY(Engine engine, load_engine_of(context, name, {}));
  watch_interrupts();
  wait_for_packs(context, engine);
  if (interrupted()) return ExitCode::interrupted;
  const PackInfo packs = engine.packs();
  if (packs.error) return tl::unexpected(*packs.error);
  if (packs.state == PackState::off) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' runs without packed weights", name),
                "That is so with --packs off, --no-mmap, --mlock, and where nothing of a model can be packed.");
  }
  context.console.note(describe_packs(packs));
  return ExitCode::ok;
}

Result<ExitCode> run_cache(Context& context) {
  const std::string what = *context.arguments.positional(0);
  if (what != "packs")
    return fail(ErrorCode::invalid_argument, fmt::format("there is no cache '{}'", what), "It is packs.");
  const auto asked = [&](std::string_view option) { return context.arguments.has(option); };
  if (asked("make") + asked("clear") + asked("verify") + asked("json") > 1) {
    return fail(ErrorCode::invalid_argument, "--make, --clear, --verify and --json do not go together",
                "Give one of them.");
  }
  const std::filesystem::path directory = pack_directory(context.settings());
  if (directory.empty()) {
    return fail(ErrorCode::not_found, "neither HOME nor XDG_CACHE_HOME says where the cache directory is",
                "Choose one with --cache-dir or ADZE_CACHE_DIR.");
  }
  if (context.arguments.has("make")) return make(context);
  ADZE_TRY(const std::vector<StoredPack> packs, chosen_packs(context, directory));
  if (context.arguments.has("clear")) return clear(context, packs);
  if (context.arguments.has("verify")) return verify(context, packs);
  return list(context, packs, directory);
}

}  // namespace

constinit const Command kCache{.name = "cache",
                               .summary = "Show or clear what Adze keeps between starts",
                               .description =
                                   "A model's weights are packed once, in the order in which kernels read them "
                                   "fastest, while it first runs; later starts and other processes map the file. It "
                                   "may be removed at any time. A pack is current where its model is as it was, "
                                   "changed where the model's files have other content now, orphaned where they are "
                                   "gone, and damaged where it cannot be read.",
                               .positionals = kPositionals,
                               .options = kOptions,
                               .settings = kSettings,
                               .examples = kExamples,
                               .run = run_cache};

}  // namespace adze::cli
