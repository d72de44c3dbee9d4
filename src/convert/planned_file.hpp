// A GGUF file that is known to the last byte's place but not made yet: metadata, and tensors with the type that each
// will have. Their bytes are made while the file is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "convert/tensors.hpp"
#include "format/gguf_writer.hpp"
#include "quantise/scheme.hpp"

namespace adze::convert {

struct WriteOptions {
  const quantise::Mix* mix = nullptr;  // null: the types that the tensors have
  int threads = 1;
  // Told bytes of the file, done and in all; false stops.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress{};
};

struct PlannedTensor {
  OutTensor tensor;
  tensor::DType type;
  bool fell_back = false;  // its rows are too short for the type that was meant
};

// Makes a tensor's bytes in a type.
using Maker = std::function<Status(const OutTensor& tensor, tensor::DType type, const format::TensorSink& sink)>;

// Movable. What the tensors are made of must live until it is written.
class PlannedFile {
 public:
  // `writer` has all metadata but general.size_label, file_type and quantization_version. Errors: corrupt_file.
  static Result<PlannedFile> plan(std::unique_ptr<format::GgufWriter> writer, std::vector<OutTensor> tensors,
                                  const WriteOptions& options, const Maker& make);

  const std::vector<PlannedTensor>& tensors() const { return tensors_; }
  const ParameterCount& parameters() const { return parameters_; }
  const quantise::Mix& mix() const { return *mix_; }
  std::uint64_t bytes() const { return writer_->file_bytes(); }
  // The file itself, for small ones.
  std::string to_bytes() const { return writer_->to_bytes(); }
  // Errors: disk_full, io, cancelled, corrupt_file (a value that is not finite), invalid_argument (one that is too
  // large for its type); the name then holds the old file or nothing.
  Status write(const std::filesystem::path& out) const { return writer_->write(out); }

 private:
  PlannedFile() = default;

  std::vector<PlannedTensor> tensors_;
  ParameterCount parameters_;
  const quantise::Mix* mix_ = nullptr;
  std::unique_ptr<format::GgufWriter> writer_;
};

}  // namespace adze::convert
