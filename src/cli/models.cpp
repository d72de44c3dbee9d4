#include "cli/models.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "format/gguf.hpp"
#include "hub/store.hpp"
#include "model/huggingface/vocabulary.hpp"
#include "model/vocabulary.hpp"
#include "text/tokenizer_json.hpp"

namespace adze::cli {
const char* environment_variable(const char* name) { return std::getenv(name); }

Result<std::filesystem::path> models_directory(const Settings& settings) {
  std::filesystem::path directory = hub::models_directory(settings.models_dir, environment_variable);
  if (directory.empty()) {
    return fail(ErrorCode::not_found, "neither HOME nor XDG_DATA_HOME says where the models directory is",
                "Choose one with --models-dir or ADZE_MODELS_DIR.");
  }
  std::error_code ignored;
  if (std::filesystem::exists(directory, ignored) && !std::filesystem::is_directory(directory, ignored)) {
    return fail(ErrorCode::invalid_argument, fmt::format("the models directory '{}' is a file", directory.string()),
                "Choose another one with --models-dir.");
  }
  return directory;
}

namespace {

std::filesystem::path in_cache(const Settings& settings, const char* name) {
  const std::filesystem::path cache = cache_directory(settings.cache_dir, environment_variable);
  return cache.empty() ? cache : cache / name;
}

}  // namespace

std::filesystem::path pack_directory(const Settings& settings) { return in_cache(settings, "packs"); }
std::filesystem::path profile_directory(const Settings& settings) { return in_cache(settings, "profiles"); }

Result<std::filesystem::path> find_model(const Context& context, const std::string& name) {
  std::error_code ignored;
  std::filesystem::path path(name);
  if (std::filesystem::is_directory(path, ignored)) {
    if (std::filesystem::exists(path / "config.json", ignored)) return path;
    return fail(ErrorCode::not_a_model, fmt::format("'{}' is a directory without config.json", name),
                "Name a .gguf file, or a folder with config.json, tokenizer.json and weights as .safetensors.");
  }
  if (std::filesystem::exists(path, ignored)) return path;
  // What looks like a path is one: the answer should not be about pulled models.
  if (name.ends_with(".gguf") || name.ends_with(".json") || name.starts_with('/') || name.starts_with('.')) {
    return fail(ErrorCode::not_found, fmt::format("there is no file '{}'", name),
                "Check the path; adze list shows the pulled models.");
  }
  ADZE_TRY(const std::filesystem::path directory, models_directory(context.settings()));
  ADZE_TRY(const hub::StoredModel model, hub::find_model(directory, name));
  return model.path;
}

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return model::load_folder_tokenizer(path);
  if (path.extension() == ".json") {
    ADZE_TRY(const std::string source, read_model_file(path, limits::kTokenizerMaxJsonBytes));
    ADZE_TRY(text::TokenizerSpec spec, text::spec_from_tokenizer_json(source));
    const std::filesystem::path config = path.parent_path() / "tokenizer_config.json";
    if (std::filesystem::exists(config, ignored)) {
      ADZE_TRY(const std::string words, read_model_file(config, limits::kTokenizerMaxJsonBytes));
      ADZE_TRY_STATUS(text::apply_tokenizer_config(words, spec));
    }
    return text::Tokenizer::create(std::move(spec));
  }
  ADZE_TRY(format::GgufFile opened, format::GgufFile::open(path));
  const auto file = std::make_shared<const format::GgufFile>(std::move(opened));
  return model::load_tokenizer(file->metadata(), file);
}

}  // namespace adze::cli
