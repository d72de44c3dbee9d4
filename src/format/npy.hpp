// NumPy's .npy files, float32 in C order only: logits out, saved logits in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"

namespace adze::format {

// Written row by row, so that the logits of a long text need no memory of their own. Atomic: without commit() there is
// no file.
class NpyWriter {
 public:
  // Errors: io, disk_full.
  static Result<NpyWriter> create(const std::filesystem::path& path, std::span<const std::int64_t> shape);
  Status append(std::span<const float> values);
  Status commit();  // every element of the shape must have been appended

 private:
  NpyWriter(AtomicFile file, std::uint64_t elements) : file_(std::move(file)), left_(elements) {}
  AtomicFile file_;
  std::uint64_t left_;
};

Status write_npy(const std::filesystem::path& path, std::span<const std::int64_t> shape, std::span<const float> values);

struct NpyArray {
  MappedFile map;
  std::vector<std::int64_t> shape;
  std::span<const float> values;  // in the map
};
// Errors: not_found, io, corrupt_file, unsupported_type for anything but little-endian float32 in C order.
Result<NpyArray> open_npy(const std::filesystem::path& path);

}  // namespace adze::format
