#include "cli/models.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/file.hpp"
#include "format/gguf.hpp"
#include "hub/store.hpp"
#include "model/vocabulary.hpp"
#include "text/tokenizer_json.hpp"

namespace adze::cli {
namespace {

constexpr std::uint64_t kMaxTokenizerJsonBytes = 256u << 20;

}  // namespace

const char* environment_variable(const char* name) { return std::getenv(name); }

std::filesystem::path models_directory(const Settings& settings) {
  return hub::models_directory(settings.models_dir, environment_variable);
}

Result<std::filesystem::path> find_model(const Context& context, const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path path(name);
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::not_a_model, fmt::format("'{}' is a directory", name), "Name a .gguf file.");
  }
  if (std::filesystem::exists(path, ignored)) return path;
  // What looks like a path is one: the answer should not be about pulled models.
  if (name.ends_with(".gguf") || name.ends_with(".json") || name.starts_with('/') || name.starts_with('.')) {
    return fail(ErrorCode::not_found, fmt::format("there is no file '{}'", name),
                "Check the path; adze list shows the pulled models.");
  }
  ADZE_TRY(const hub::StoredModel model, hub::find_model(models_directory(context.settings()), name));
  return model.files.front();
}

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::filesystem::path& path) {
  if (path.extension() == ".json") {
    ADZE_TRY(const std::string source, read_file(path, kMaxTokenizerJsonBytes));
    ADZE_TRY(text::TokenizerSpec spec, text::spec_from_tokenizer_json(source));
    const std::filesystem::path config = path.parent_path() / "tokenizer_config.json";
    std::error_code ignored;
    if (std::filesystem::exists(config, ignored)) {
      ADZE_TRY(const std::string words, read_file(config, kMaxTokenizerJsonBytes));
      ADZE_TRY_STATUS(text::apply_tokenizer_config(words, spec));
    }
    return text::Tokenizer::create(std::move(spec));
  }
  ADZE_TRY(format::GgufFile opened, format::GgufFile::open(path));
  const auto file = std::make_shared<const format::GgufFile>(std::move(opened));
  return model::load_tokenizer(file->metadata(), file);
}

}  // namespace adze::cli
