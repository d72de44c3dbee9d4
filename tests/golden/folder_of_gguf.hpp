// The safetensors weights that a GGUF file was converted from, by the table of its family: for oracles that do not ship
// theirs.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/hash.hpp"
#include "model/model.hpp"
#include "support/model_folder.hpp"

namespace adze::test {

// What the converter changed is undone: permuted rows, 1 added to norms, stacked or split experts, block types (which
// come back as bfloat16, or as float32 where that is not exact). `gguf` is the model loaded from the file. Not for
// Qwen 3.5, whose value heads it reorders.
std::vector<FolderTensor> folder_tensors(const model::Model& gguf);

// Of all names, shapes and bytes, in any order of the tensors.
Digest digest_of(std::span<const FolderTensor> tensors);
// The tensors of a .safetensors file.
std::vector<FolderTensor> read_tensors(const std::filesystem::path& file);

}  // namespace adze::test
