// safetensors, read as version 0.8.0 of its library validates: a JSON header of at most 100 MB, tensors that tile the
// data without hole or overlap, to the last byte. Mapped; views live as long as the file. Immutable after open().
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "tensor/view.hpp"

namespace adze::format {

struct SafetensorsTensor {
  std::string name;
  std::string_view dtype;  // the format's spelling: "F32", "BF16", "F8_E4M3"
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::uint64_t file_offset = 0;

  // As Adze's tensors are seen; the bytes may start at any address. Errors: unsupported_type for a type without a
  // DType, unsupported_feature for more than four dimensions or none at all of some size.
  Result<tensor::TensorView> view() const;
};

class SafetensorsFile {
 public:
  // Errors: not_found, io, not_a_model (says what the file looks like), corrupt_file, limit_exceeded.
  static Result<SafetensorsFile> open(const std::filesystem::path& path, MapOptions options = {});
  // From memory, which must outlive the result; `name` is used in messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string_view name);

  std::span<const SafetensorsTensor> tensors() const { return tensors_; }  // in the order of their bytes
  const SafetensorsTensor* find(std::string_view name) const;
  // The free-form strings of `__metadata__`, sorted by key.
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::span<const std::byte> header() const { return header_; }      // with its length: all names, shapes and offsets
  const std::filesystem::path& path() const { return map_.path(); }  // empty when parsed from memory
  // Gives the pages of a tensor that has been copied back to the system. A hint.
  void release(const SafetensorsTensor& tensor) const { map_.release(tensor.file_offset, tensor.bytes.size()); }
  void release_all() const { map_.release_all(); }  // MappedFile's, and so is this
  bool read(const std::byte* at, std::span<std::byte> into) const { return map_.read(at, into); }

 private:
  MappedFile map_;
  std::span<const std::byte> header_;
  std::uint64_t file_bytes_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::uint32_t> by_name_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// Collects arrays and writes them in one go. One thread.
class SafetensorsWriter {
 public:
  void add(std::string_view name, std::span<const std::int64_t> shape, std::span<const float> values);         // F32
  void add(std::string_view name, std::span<const std::int64_t> shape, std::span<const std::int32_t> values);  // I32
  void add_metadata(std::string_view key, std::string_view value);
  // Errors: io, disk_full; the name holds the old file or the whole new one.
  Status write(const std::filesystem::path& path) const;

 private:
  struct Array {
    std::string name;
    std::string_view dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };
  void add_array(std::string_view name, std::string_view dtype, std::span<const std::int64_t> shape,
                 std::span<const std::byte> bytes);

  std::vector<Array> arrays_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace adze::format
