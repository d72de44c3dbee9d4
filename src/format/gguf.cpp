#include "format/gguf.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "base/limits.hpp"
#include "format/gguf_reader.hpp"

namespace adze::format {
namespace {

// NAME-00002-of-00003.gguf, taken apart: shard 2 of 3. Five digits, as every splitter writes them.
struct SplitName {
  std::string prefix;
  std::uint64_t number = 0;
  std::uint64_t count = 0;
};

std::string shard_name(std::string_view prefix, std::uint64_t number, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

std::optional<SplitName> parse_split_name(const std::string& name) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (name.size() <= kForm.size()) return std::nullopt;
  const std::string_view tail = std::string_view(name).substr(name.size() - kForm.size());
  SplitName split{name.substr(0, name.size() - kForm.size()), 0, 0};
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kForm[i] != '0' ? tail[i] != kForm[i] : !digit) return std::nullopt;
    std::uint64_t& number = i < 6 ? split.number : split.count;
    if (kForm[i] == '0') number = number * 10 + static_cast<std::uint64_t>(tail[i] - '0');
  }
  if (split.number == 0 || split.number > split.count) return std::nullopt;
  return split;
}

// Files merged from shards carry split.count = 0.
Result<std::uint64_t> split_count(const Metadata& metadata) { return metadata.get_u64_or("split.count", 1); }

Error in_file(Error error, std::string_view name) {
  error.message = fmt::format("'{}': {}", name, error.message);
  return error;
}

}  // namespace

Status GgufFile::add_shard(MappedFile map, std::span<const std::byte> bytes, std::string_view name) {
  ADZE_TRY(GgufHeader header, read_gguf_header(bytes, name));
  const auto shard = static_cast<std::uint32_t>(shards_.size());
  for (GgufTensor& tensor : header.tensors) {
    tensor.shard = shard;
    tensors_.push_back(tensor);
  }
  // Split keys of every shard but the first are read before its metadata goes: see load_split.
  metadata_ = std::move(header.metadata);
  shards_.push_back({std::move(map), bytes, std::min<std::uint64_t>(header.data_offset, bytes.size()), header.version,
                     header.alignment});
  return {};
}

Status GgufFile::load_split(const std::filesystem::path& path, MapOptions options) {
  const std::string name = path.filename().string();
  const auto opened = parse_split_name(name);
  if (!opened) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("'{}' is one file of a split model, but its name does not say which", name),
                "give the files of a split their original names, NAME-00001-of-0000N.gguf");
  }
  if (opened->count > limits::kGgufMaxSplits) {
    return fail(ErrorCode::limit_exceeded, fmt::format("'{}' is split into {} files, more than the limit of {}", name,
                                                       opened->count, limits::kGgufMaxSplits));
  }
  shards_.clear();
  tensors_.clear();
  Metadata first;
  for (std::uint64_t number = 1; number <= opened->count; ++number) {
    const std::string shard = shard_name(opened->prefix, number, opened->count);
    auto map = MappedFile::open(path.parent_path() / shard, options);
    if (!map && map.error().code == ErrorCode::not_found) {
      return fail(ErrorCode::not_found,
                  fmt::format("file {} of {} of the split model is missing: '{}'", number, opened->count, shard),
                  "put all files of the split into one folder");
    }
    if (!map) return tl::unexpected(std::move(map.error()));
    const auto bytes = map->bytes();
    ADZE_TRY_STATUS(add_shard(std::move(*map), bytes, shard));
    const auto count = split_count(metadata_);
    const auto position = metadata_.get_u64("split.no");
    if (!count) return tl::unexpected(in_file(count.error(), shard));
    if (!position) return tl::unexpected(in_file(position.error(), shard));
    if (*count != opened->count || *position != number - 1) {
      return fail(ErrorCode::corrupt_file,
                  fmt::format("'{}' does not belong here: its metadata says file {} of {}, its name file {} of {}",
                              shard, *position + 1, *count, number, opened->count),
                  "download the files of the split again, all from one place");
    }
    if (number == 1) first = std::move(metadata_);
  }
  metadata_ = std::move(first);
  const auto total = metadata_.get_u64_or("split.tensors.count", tensors_.size());
  if (!total) return tl::unexpected(in_file(total.error(), name));
  if (*total != tensors_.size()) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("the split model '{}' has {} tensors in its {} files, its first file says {}",
                            opened->prefix, tensors_.size(), opened->count, *total),
                "download the files of the split again, all from one place");
  }
  return {};
}

Status GgufFile::index_tensors() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  const auto name_of = [&](std::uint32_t i) { return tensors_[i].view.name; };
  std::sort(by_name_.begin(), by_name_.end(), [&](auto a, auto b) { return name_of(a) < name_of(b); });
  const auto twin =
      std::adjacent_find(by_name_.begin(), by_name_.end(), [&](auto a, auto b) { return name_of(a) == name_of(b); });
  if (twin != by_name_.end()) {
    return fail(ErrorCode::corrupt_file, fmt::format("tensor '{}' occurs twice", printable(name_of(*twin))),
                "the file is damaged or was converted wrongly: download or convert it again");
  }
  return {};
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path, MapOptions options) {
  const std::string name = path.filename().string();
  ADZE_TRY(MappedFile map, MappedFile::open(path, options));
  GgufFile file;
  const auto bytes = map.bytes();
  ADZE_TRY_STATUS(file.add_shard(std::move(map), bytes, name));
  const auto count = split_count(file.metadata_);
  if (!count) return tl::unexpected(in_file(count.error(), name));
  if (*count > 1) {
    ADZE_TRY_STATUS(file.load_split(path, options));
  } else if (const auto split = parse_split_name(name); split && split->count > 1) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("'{}' is named like file {} of {} of a split model, but its metadata knows of no split",
                            name, split->number, split->count),
                "rename the file, or download the split again");
  }
  if (auto indexed = file.index_tensors(); !indexed) return tl::unexpected(in_file(std::move(indexed.error()), name));
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string_view name) {
  GgufFile file;
  ADZE_TRY_STATUS(file.add_shard({}, bytes, name));
  if (auto indexed = file.index_tensors(); !indexed) return tl::unexpected(in_file(std::move(indexed.error()), name));
  return file;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::uint32_t i, std::string_view wanted) { return tensors_[i].view.name < wanted; });
  return at != by_name_.end() && tensors_[*at].view.name == name ? &tensors_[*at] : nullptr;
}

std::uint64_t GgufFile::file_bytes() const {
  std::uint64_t total = 0;
  for (const GgufShard& shard : shards_) total += shard.bytes.size();
  return total;
}

std::uint64_t GgufFile::tensor_bytes() const {
  std::uint64_t total = 0;
  for (const GgufTensor& tensor : tensors_) total += tensor.view.bytes.size();
  return total;
}

std::string_view GgufFile::architecture() const {
  return metadata_.get_string_or("general.architecture", "").value_or(std::string_view());
}

}  // namespace adze::format
