#include "hub/hub_cache.hpp"

#include <system_error>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::hub {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);  // through the link to its blob: a dangling one is no file
}

}  // namespace

fs::path hub_cache_directory(Lookup lookup) {
  const auto set = [&](const char* name) -> const char* {
    const char* value = lookup(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  if (const char* cache = set("HF_HUB_CACHE")) return cache;
  if (const char* home = set("HF_HOME")) return fs::path(home) / "hub";
  if (const char* cache = set("XDG_CACHE_HOME")) return fs::path(cache) / "huggingface" / "hub";
  if (const char* home = set("HOME")) return fs::path(home) / ".cache" / "huggingface" / "hub";
  return {};
}

std::optional<fs::path> find_in_hub_cache(const fs::path& cache, const HubFile& file) {
  if (cache.empty()) return std::nullopt;
  std::string folder = "models--" + file.repository;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path repository = cache / folder;
  if (auto commit = read_file(repository / "refs" / "main", limits::kMaxHubNoteBytes)) {
    while (!commit->empty() && (commit->back() == '\n' || commit->back() == ' ')) commit->pop_back();
    fs::path path = repository / "snapshots" / *commit / file.file;
    if (!commit->empty() && commit->find('/') == commit->npos && is_file(path)) return path;
  }
  std::optional<fs::path> newest;
  fs::file_time_type newest_time{};
  std::error_code error;
  for (fs::directory_iterator at(repository / "snapshots", error), end; !error && at != end; at.increment(error)) {
    const fs::path path = at->path() / file.file;
    std::error_code ignored;
    const auto time = fs::last_write_time(at->path(), ignored);
    if (!is_file(path) || (newest && time <= newest_time)) continue;
    newest = path;
    newest_time = time;
  }
  return newest;
}

}  // namespace adze::hub
