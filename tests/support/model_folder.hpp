// A model folder that a test writes file by file; removed when the object goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adze::test {

struct FolderTensor {
  std::string name;
  std::string dtype;  // safetensors spelling
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name);  // below the tests' temporary directory, emptied
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  ~ModelFolder();

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& file, std::string_view text) const;
  // A .safetensors file whose data starts `shift` bytes past a multiple of 8.
  void write_weights(const std::string& file, std::span<const FolderTensor> tensors, std::size_t shift = 0) const;
  void remove(const std::string& file) const;

 private:
  std::filesystem::path path_;
};

}  // namespace adze::test
