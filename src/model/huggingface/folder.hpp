// From a path to a model's weights and metadata, whatever format they are in.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "format/weight_store.hpp"

namespace adze::model {

struct ModelSource {
  format::WeightStore store;
  std::vector<std::pair<std::string, std::string>>
      key_sources{};                 // metadata key -> "config.json's head_dim", for messages
  std::vector<std::string> notes{};  // for people
};

// A GGUF file, or a Hugging Face folder whose config.json is imported. Errors: those of WeightStore::open, of
// SafetensorsFolder::open and of import_config; not_a_model for a folder without config.json.
Result<ModelSource> open_model_source(const std::filesystem::path& path, MapOptions options = {});

// Messages about metadata keys, said with the names that the user's file has.
Error in_words_of(const std::vector<std::pair<std::string, std::string>>& key_sources, Error error);

}  // namespace adze::model
