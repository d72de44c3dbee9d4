// GGUF, versions 2 and 3, little-endian, mapped. Every count, length, offset, dimension and type is checked against the
// bytes of the file before it is used: a hostile file makes open() fail, and what open() allocates is proportional to
// the part of the file that it has read. A GgufFile is immutable and may be read from any thread; views into it (keys,
// strings, tensors) live as long as it does, moves included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "format/metadata.hpp"
#include "tensor/view.hpp"

namespace adze::format {

struct GgufTensor {
  tensor::TensorView view;        // Shape outermost first (the file lists it innermost first)
  std::uint32_t shard = 0;        // index into GgufFile::shards()
  std::uint64_t file_offset = 0;  // of the first byte, from the start of the shard
};

struct GgufShard {
  MappedFile map;                    // empty when parsed from memory
  std::span<const std::byte> bytes;  // the whole file
  std::uint64_t data_offset = 0;     // where tensor data starts; everything before it is the header
  std::uint32_t version = 0;
  std::uint32_t alignment = 0;
};

class GgufFile {
 public:
  // Opens a model. A name of the form NAME-00001-of-00003.gguf, any shard of it, opens all shards of the split. Errors:
  //   not_found, io, out_of_memory   the system refused (the shard is named)
  //   not_a_model                    no GGUF at all; the message says what the file looks like
  //   corrupt_file                   truncated or contradicting itself; names the key or tensor and the numbers
  //   unsupported_feature            big-endian, version 1, a nested array
  //   unsupported_type               a block type that is known and refused, by name, or not known at all
  //   limit_exceeded                 a number of limits.hpp
  static Result<GgufFile> open(const std::filesystem::path& path, MapOptions options = {});
  // The same for a single file in memory, which must outlive the result; `name` is used in messages.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string_view name);

  const Metadata& metadata() const { return metadata_; }            // of the first shard
  std::span<const GgufTensor> tensors() const { return tensors_; }  // file order, shard after shard
  const GgufTensor* find_tensor(std::string_view name) const;
  std::span<const GgufShard> shards() const { return shards_; }
  std::uint64_t file_bytes() const;    // of all shards
  std::uint64_t tensor_bytes() const;  // of all tensors, without padding
  // general.architecture; open() has made sure that it is a string where it is present. Empty when absent.
  std::string_view architecture() const;

 private:
  Status add_shard(MappedFile map, std::span<const std::byte> bytes, std::string_view name);
  Status index_tensors();  // sorts by_name_; a name that occurs twice is corrupt_file
  Status load_split(const std::filesystem::path& path, MapOptions options);

  Metadata metadata_;
  std::vector<GgufShard> shards_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> by_name_;  // indexes into tensors_, sorted by name
};

}  // namespace adze::format
