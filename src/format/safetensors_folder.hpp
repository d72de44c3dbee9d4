// The weights of a Hugging Face folder: model.safetensors, or model.safetensors.index.json and the shards that it
// names. Mapped, nothing is copied; views live as long as the folder. Immutable after open().
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "format/safetensors.hpp"

namespace adze::format {

// Which shard each tensor is in, as the index says.
struct SafetensorsIndex {
  std::optional<std::uint64_t> total_bytes;                     // metadata.total_size
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, file name; by tensor
};
// Errors: corrupt_file (no index; a tensor twice; a file name that is a path or no .safetensors), limit_exceeded.
Result<SafetensorsIndex> parse_safetensors_index(std::string_view json);

class SafetensorsFolder {
 public:
  // A single file is preferred to an index where both are there. File names must be plain: a shard may be a symbolic
  // link (a hub's cache is made of them) but never a path. Errors: those of SafetensorsFile::open, naming the shard;
  // not_found (no weights; says what is there instead), corrupt_file (the index is wrong, a shard or tensor is missing,
  // a tensor is in two shards, or fewer bytes than the index promises).
  static Result<SafetensorsFolder> open(const std::filesystem::path& folder, MapOptions options = {});

  const std::filesystem::path& path() const { return path_; }
  std::span<const SafetensorsFile> shards() const { return shards_; }
  const SafetensorsTensor* find(std::string_view name) const;  // in whichever shard; null: in none
  void release(std::string_view name) const;                   // gives a tensor's pages back to the system; a hint
  std::uint64_t file_bytes() const;

 private:
  std::filesystem::path path_;
  std::vector<SafetensorsFile> shards_;
};

}  // namespace adze::format
