#include "model/huggingface/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "model/huggingface/import.hpp"
#include "model/huggingface/vocabulary.hpp"

namespace adze::model {
namespace {

// "/models/Qwen3-0.6B/" -> "Qwen3-0.6B"
std::string folder_name(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::filesystem::path whole = std::filesystem::absolute(folder, ignored).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.filename().string();
}

// A multimodal model's text model may have settings of its own.
Result<std::optional<format::MlxQuantisation>> mlx_quantisation(const format::JsonObject& config) {
  ADZE_TRY(const auto text, config.object("text_config"));
  const bool outer = format::MlxQuantisation::describes(config);
  if (!outer && (!text || !format::MlxQuantisation::describes(*text))) return std::nullopt;
  return format::MlxQuantisation::parse(outer ? config : *text);
}

Result<ModelSource> open_folder(const std::filesystem::path& folder, MapOptions options) {
  ADZE_TRY(const auto config, read_folder_json(folder, "config.json"));
  if (!config) {
    return fail(ErrorCode::not_a_model, fmt::format("'{}' is a folder without config.json", folder.string()),
                "name a .gguf file, or a folder with config.json, tokenizer.json and weights as .safetensors");
  }
  format::GgufWriter metadata;
  ADZE_TRY(ImportedConfig imported, import_config(*config, metadata));
  metadata.add_string("general.name", folder_name(folder));
  // Shapes of GGUF files may follow from the vocabulary instead; those of folders do not. Longer keys come first.
  imported.sources.emplace(imported.sources.begin(),
                           fmt::format("{}.vocab_size or tokenizer.ggml.tokens", imported.architecture),
                           "config.json's vocab_size");
  ADZE_TRY(const auto generation, read_folder_json(folder, "generation_config.json"));
  if (generation) ADZE_TRY_STATUS(import_generation_config(*generation, metadata, imported.sources));
  ADZE_TRY(const auto chat_template, folder_chat_template(folder));
  if (chat_template) metadata.add_string("tokenizer.chat_template", *chat_template);

  ADZE_TRY(std::optional<format::MlxQuantisation> mlx, mlx_quantisation(*config));
  ADZE_TRY(format::SafetensorsFolder weights, format::SafetensorsFolder::open(folder, options));
  ADZE_TRY(format::WeightStore store,
           format::WeightStore::from_folder(std::move(weights), metadata.to_bytes(), std::move(mlx)));
  ModelSource source{.store = std::move(store), .key_sources = std::move(imported.sources)};
  if (!imported.unknown.empty()) {
    source.notes.push_back(fmt::format("config.json has settings that its model_type does not know: {}",
                                       fmt::join(imported.unknown, ", ")));
  }
  return source;
}

void replace_word(std::string& text, std::string_view word, std::string_view by) {
  const auto in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const std::size_t end = at + word.size();
    if ((at > 0 && in_word(text[at - 1])) || (end < text.size() && in_word(text[end]))) {
      at = end;
      continue;
    }
    text.replace(at, word.size(), by);
    at += by.size();
  }
}

}  // namespace

Result<ModelSource> open_model_source(const std::filesystem::path& path, MapOptions options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return open_folder(path, options);
  ADZE_TRY(format::WeightStore store, format::WeightStore::open(path, options));
  return ModelSource{.store = std::move(store)};
}

Error in_words_of(const std::vector<std::pair<std::string, std::string>>& key_sources, Error error) {
  for (const auto& [key, source] : key_sources) {
    for (std::string* text : {&error.message, &error.hint}) {
      replace_word(*text, fmt::format("the metadata key {}", key), source);
      replace_word(*text, fmt::format("metadata key '{}'", key), source);
      replace_word(*text, key, source);
    }
  }
  return error;
}

}  // namespace adze::model
