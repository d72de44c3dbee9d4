// The models on disk: a folder of model files, in sub-folders ORG/REPO where they came from a hub. A model's name is
// its path there without ".gguf", or any unambiguous end of it. Nothing else is kept: a file that is copied into the
// folder is a model, and so is a sub-folder with config.json and .safetensors files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace adze::hub {

// Reads an environment variable; getenv, or a test's own.
using Lookup = const char* (*)(const char* name);

// `setting` where it is not empty, else $XDG_DATA_HOME/adze/models, else ~/.local/share/adze/models; empty where
// HOME is not set either.
std::filesystem::path models_directory(std::string_view setting, Lookup lookup);

struct StoredModel {
  std::string name;                          // "smollm2", "ORG/REPO/FILE"
  std::filesystem::path path;                // what to open: a file (of a split: the first shard) or a folder
  std::vector<std::filesystem::path> files;  // one, or every shard, or all files of the folder
  std::uint64_t bytes = 0;                   // of all files
  bool linked = false;                       // the bytes lie elsewhere: in a hub cache
};

// Sorted by name; a folder that is not there has no models.
std::vector<StoredModel> list_models(const std::filesystem::path& directory);

// By full name, file name or last part, upper and lower case alike if need be. Errors: not_found (says what there is),
// invalid_argument when several models answer to it.
Result<StoredModel> find_model(const std::filesystem::path& directory, std::string_view name);

// Removes the model's files, parts of downloads of them, and folders that are left empty. A linked model loses its link
// only.
Result<StoredModel> remove_model(const std::filesystem::path& directory, std::string_view name);

}  // namespace adze::hub
