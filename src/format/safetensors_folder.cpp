#include "format/safetensors_folder.hpp"

#include <algorithm>
#include <system_error>
#include <unordered_map>

#include "base/limits.hpp"
#include "format/json.hpp"
#include "format/metadata.hpp"

namespace adze::format {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr const char* kIncomplete = "the folder is incomplete or mixed from two downloads: get it again";

tl::unexpected<Error> wrong_index(std::string problem) {
  return fail(ErrorCode::corrupt_file, fmt::format("{}: {}", kIndexName, problem), kIncomplete);
}

bool is_plain_name(std::string_view name) {
  constexpr std::string_view kForbidden("/\\:\0", 4);
  return name.ends_with(".safetensors") && !name.starts_with('.') &&
         name.find_first_of(kForbidden) == std::string_view::npos;
}

// What stands in for the weights in a folder without any.
std::string describe_absence(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
      return fmt::format("its weights are a Python pickle ('{}'), which Adze does not read",
                         entry.path().filename().string());
    }
    if (extension == ".gguf") return fmt::format("it holds '{}': name that file", entry.path().filename().string());
  }
  return fmt::format("it holds neither {} nor {}", kSingleName, kIndexName);
}

// Every tensor of the map in the shard that it names, none of them in two shards.
Status check_shards(const SafetensorsIndex& index, const std::vector<std::string>& names,
                    std::span<const SafetensorsFile> shards) {
  std::unordered_map<std::string_view, std::size_t> where;
  std::uint64_t bytes = 0;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    for (const SafetensorsTensor& tensor : shards[shard].tensors()) {
      bytes += tensor.bytes.size();
      if (where.emplace(tensor.name, shard).second) continue;
      return wrong_index(fmt::format("tensor '{}' is in two files, '{}' and '{}'", printable(tensor.name),
                                     names[where[tensor.name]], names[shard]));
    }
  }
  for (const auto& [tensor, file] : index.weight_map) {
    const auto found = where.find(tensor);
    if (found == where.end() || names[found->second] != file) {
      return wrong_index(fmt::format("tensor '{}' is not in '{}'", printable(tensor), file));
    }
  }
  if (index.total_bytes && *index.total_bytes > bytes) {
    return wrong_index(fmt::format("it promises {} bytes of tensors, the files hold {}", *index.total_bytes, bytes));
  }
  return {};
}

}  // namespace

Result<SafetensorsIndex> parse_safetensors_index(std::string_view text) {
  ADZE_TRY(const JsonObject root, JsonObject::parse(text, std::string(kIndexName)));
  SafetensorsIndex index;
  ADZE_TRY(const auto metadata, root.object("metadata"));
  if (metadata) {
    ADZE_TRY(const auto size, metadata->integer("total_size"));
    if (size && *size < 0) return wrong_index(fmt::format("total_size is {}", *size));
    if (size) index.total_bytes = static_cast<std::uint64_t>(*size);
  }
  ADZE_TRY(const auto map, root.object("weight_map"));
  if (!map) return wrong_index("there is no weight_map");
  for (std::string& tensor : map->keys()) {
    ADZE_TRY(auto file, map->text(tensor));
    if (!file || !is_plain_name(*file)) {
      return wrong_index(
          fmt::format("tensor '{}' is said to be in '{}', which is not the plain name of a .safetensors "
                      "file",
                      printable(tensor), file ? printable(*file) : "null"));
    }
    index.weight_map.emplace_back(std::move(tensor), std::move(*file));
  }
  if (index.weight_map.empty()) return wrong_index("its weight_map is empty");
  return index;
}

Result<SafetensorsFolder> SafetensorsFolder::open(const fs::path& path, MapOptions options) {
  SafetensorsFolder folder;
  folder.path_ = path;
  std::error_code ignored;
  if (fs::exists(path / kSingleName, ignored)) {
    ADZE_TRY(SafetensorsFile file, SafetensorsFile::open(path / kSingleName, options));
    folder.shards_.push_back(std::move(file));
    return folder;
  }
  if (!fs::exists(path / kIndexName, ignored)) {
    return fail(ErrorCode::not_found, fmt::format("'{}' has no weights: {}", path.string(), describe_absence(path)),
                "a model folder holds config.json, tokenizer.json and the weights as .safetensors");
  }
  ADZE_TRY(const std::string text, read_model_file(path / kIndexName, limits::kSafetensorsMaxIndexBytes));
  ADZE_TRY(const SafetensorsIndex index, parse_safetensors_index(text));
  std::vector<std::string> names;
  for (const auto& [tensor, file] : index.weight_map) names.push_back(file);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.size() > limits::kSafetensorsMaxShards) {
    return fail(ErrorCode::limit_exceeded, fmt::format("{} names {} files, more than the limit of {}", kIndexName,
                                                       names.size(), limits::kSafetensorsMaxShards));
  }
  for (const std::string& name : names) {
    ADZE_TRY(SafetensorsFile file, SafetensorsFile::open(path / name, options));
    folder.shards_.push_back(std::move(file));
  }
  ADZE_TRY_STATUS(check_shards(index, names, folder.shards_));
  return folder;
}

const SafetensorsTensor* SafetensorsFolder::find(std::string_view name) const {
  for (const SafetensorsFile& shard : shards_) {
    if (const SafetensorsTensor* tensor = shard.find(name)) return tensor;
  }
  return nullptr;
}

void SafetensorsFolder::release(std::string_view name) const {
  for (const SafetensorsFile& shard : shards_) {
    if (const SafetensorsTensor* tensor = shard.find(name)) return shard.release(*tensor);
  }
}

std::uint64_t SafetensorsFolder::file_bytes() const {
  std::uint64_t total = 0;
  for (const SafetensorsFile& shard : shards_) total += shard.file_bytes();
  return total;
}

}  // namespace adze::format
