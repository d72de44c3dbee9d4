// A model folder (Hugging Face, MLX) as one GGUF file that Adze and llama.cpp read: docs/design/0008. Tensors are made
// while the file is written, so the memory is that of a few rows beside the mapped folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "convert/planned_file.hpp"
#include "model/model.hpp"

namespace adze::convert {

struct FolderConversion {
  std::unique_ptr<const model::Model> model;  // what the file is made of; its notes are for people
  PlannedFile file;
  std::vector<std::string> notes{};  // what the file cannot say, for people
};

// Without a mix floats keep their type, and weights that MLX quantised become bfloat16. Errors: invalid_argument for a
// file (a GGUF is `adze quantize`'s); those of Model::load, of the folder's tokenizer and of add_vocabulary;
// unsupported_feature for a setting that GGUF cannot say.
Result<FolderConversion> plan_conversion(const std::filesystem::path& folder, const WriteOptions& options);

}  // namespace adze::convert
