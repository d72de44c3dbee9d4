// What `adze inspect` shows of a model file, GGUF or safetensors, or of a folder: gathered here, laid out by the
// command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "format/mlx_quantisation.hpp"
#include "format/safetensors.hpp"
#include "format/safetensors_folder.hpp"

namespace adze::format {

struct InspectedKey {
  std::string key;
  std::string type;      // "u32", "string", "string[49152]"
  std::string value;     // control bytes escaped, long strings and arrays shortened
  bool is_text = false;  // value is a string or a shortened array, not one number
};

struct InspectedTensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;  // outermost first
  std::uint64_t bytes = 0;
  std::uint64_t file_offset = 0;
  std::uint32_t file = 0;  // index into FileReport::files
};

struct TypeTotal {
  std::string type;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
};

struct FileReport {
  std::string format;        // "GGUF version 3", "safetensors"
  std::string architecture;  // empty where the file does not say
  std::vector<std::string> files;
  std::uint64_t file_bytes = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t elements = 0;          // parameters, all tensors
  std::vector<InspectedKey> metadata;  // in file order
  std::vector<InspectedTensor> tensors;
  std::vector<TypeTotal> totals;  // largest first
};

// Opens the file or the folder whatever its kind. Errors: those of GgufFile::open, SafetensorsFile::open and
// SafetensorsFolder::open; for a file that is neither, not_a_model.
Result<FileReport> inspect(const std::filesystem::path& path);
FileReport inspect(const GgufFile& file);
FileReport inspect(const SafetensorsFile& file);
// With `mlx`, a quantised weight is one tensor, in the words of tensor::type_name().
FileReport inspect(const SafetensorsFolder& folder, const std::optional<MlxQuantisation>& mlx = std::nullopt);
// Keys as a report shows them.
std::vector<InspectedKey> inspect_metadata(const Metadata& metadata);

}  // namespace adze::format
