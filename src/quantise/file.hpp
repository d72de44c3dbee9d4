// A GGUF model as another GGUF model with smaller types. The input stays mapped and the output is made piece by piece,
// so that the memory is that of a few rows, whatever the model's size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"
#include "format/importance_matrix.hpp"
#include "quantise/scheme.hpp"

namespace adze::quantise {

struct FileOptions {
  Scheme scheme;
  const format::ImportanceMatrix* importance = nullptr;
  std::string importance_name{};  // its file, noted in the output's metadata
  bool allow_requantise = false;  // quantised tensors may change their type
  int threads = 1;
  // Told bytes of the input, done and in all; false stops.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress{};
};

struct PlannedTensor {
  const format::GgufTensor* from;
  TypeChoice choice;
  bool changes = false;         // its bytes are not simply copied
  bool has_importance = false;  // and an importance matrix guides it
};

struct FilePlan {
  std::vector<PlannedTensor> tensors;  // in the order of the input
  std::uint64_t bytes_before = 0, bytes_after = 0;
  int fell_back = 0;           // tensors whose rows are too short for the type that was meant
  int without_importance = 0;  // tensors that the importance matrix does not have, though their type would use it
};

// What would be done, from names, shapes and metadata alone. Errors: invalid_argument for a tensor that is quantised
// already (unless allowed), for an importance matrix of another model, and for one that is missing where a mix needs
// it.
Result<FilePlan> plan_file(const format::GgufFile& in, const FileOptions& options);

// Writes it. Errors: disk_full, io, cancelled, corrupt_file (a value that is not finite, also in what is only copied),
// invalid_argument (one that is too large for its type); the name then holds the old file or nothing.
Status write_file(const format::GgufFile& in, const FilePlan& plan, const FileOptions& options,
                  const std::filesystem::path& out);

// general.file_type and general.quantization_version, as llama.cpp sets them.
void add_quantisation_keys(format::GgufWriter& writer, const Mix& mix);

}  // namespace adze::quantise
