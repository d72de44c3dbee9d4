#include "support/model_folder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace adze::test {

// The process in the name: parts of one test program run side by side.
ModelFolder::ModelFolder(const std::string& name)
    : path_(std::filesystem::path(::testing::TempDir()) / fmt::format("{}.{}", name, ::getpid())) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

ModelFolder::~ModelFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ModelFolder::write(const std::string& file, std::string_view text) const {
  std::ofstream out(path_ / file, std::ios::binary);
  out << text;
}

void ModelFolder::write_weights(const std::string& file, std::span<const FolderTensor> tensors,
                                std::size_t shift) const {
  std::string header = "{", data;
  for (const FolderTensor& tensor : tensors) {
    if (header.size() > 1) header += ',';
    header += fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name, tensor.dtype,
                          fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.bytes.size());
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8 + shift, ' ');
  const std::uint64_t size = header.size();
  std::string whole(reinterpret_cast<const char*>(&size), sizeof size);
  write(file, whole + header + data);
}

void ModelFolder::remove(const std::string& file) const { std::filesystem::remove(path_ / file); }

}  // namespace adze::test
