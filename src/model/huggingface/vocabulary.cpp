#include "model/huggingface/vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "text/tokenizer_json.hpp"

namespace adze::model {
namespace {

using format::JsonObject;

// A file of the folder that may be missing.
Result<std::optional<std::string>> read_if_there(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  ADZE_TRY(std::string text, read_model_file(path, max_bytes));
  return text;
}

Status add_end_tokens(const JsonObject& config, text::TokenizerSpec& spec) {
  ADZE_TRY(const auto ids, config.integers("eos_token_id"));
  if (!ids) return {};
  for (const std::int64_t id : *ids) {
    if (id < 0 || id >= std::ssize(spec.tokens)) {
      return fail(ErrorCode::corrupt_file,
                  fmt::format("{}: \"eos_token_id\" is {}, but the vocabulary has {} tokens", config.file(), id,
                              spec.tokens.size()),
                  "the files of the folder do not belong together: get it again");
    }
    const auto token = static_cast<text::TokenId>(id);
    if (!spec.eos) spec.eos = token;
    if (std::ranges::find(spec.end_of_generation, token) == spec.end_of_generation.end())
      spec.end_of_generation.push_back(token);
  }
  return {};
}

// Some folders of multimodal models add tokens behind the text model's last embedding row (Gemma 3's image token). No
// text can mean them; a vocabulary whose ordinary tokens reach so far is left as it is, and loading the model refuses
// it.
void leave_out_tokens_without_embedding(std::int64_t rows, text::TokenizerSpec& spec) {
  const auto is_beyond = [&](const text::AddedToken& token) { return token.id >= rows; };
  if (rows >= std::ssize(spec.tokens) || !spec.added_tokens ||
      std::ranges::count_if(*spec.added_tokens, is_beyond) != std::ssize(spec.tokens) - rows) {
    return;
  }
  const auto size = static_cast<std::size_t>(rows);
  spec.tokens.resize(size);
  if (spec.scores.size() > size) spec.scores.resize(size);
  if (spec.types.size() > size) spec.types.resize(size);
  std::erase_if(*spec.added_tokens, is_beyond);
}

// vocab_size of config.json, which may stand in its text_config.
Result<std::optional<std::int64_t>> embedding_rows(const std::optional<JsonObject>& config) {
  if (!config) return std::nullopt;
  ADZE_TRY(const auto text_config, config->object("text_config"));
  return (text_config ? *text_config : *config).integer("vocab_size");
}

}  // namespace

Result<std::optional<JsonObject>> read_folder_json(const std::filesystem::path& folder, const char* name) {
  ADZE_TRY(const auto text, read_if_there(folder / name, limits::kModelConfigMaxBytes));
  if (!text) return std::nullopt;
  ADZE_TRY(JsonObject object, JsonObject::parse(*text, name));
  return object;
}

Result<text::TokenizerSpec> tokenizer_spec_from_folder(const std::filesystem::path& folder) {
  ADZE_TRY(const auto source, read_if_there(folder / "tokenizer.json", limits::kTokenizerMaxJsonBytes));
  if (!source) {
    return fail(ErrorCode::not_found, fmt::format("'{}' has no tokenizer.json", folder.string()),
                "get that file too, or let transformers write it (AutoTokenizer, save_pretrained)");
  }
  ADZE_TRY(text::TokenizerSpec spec, text::spec_from_tokenizer_json(*source));
  ADZE_TRY(const auto config, read_if_there(folder / "tokenizer_config.json", limits::kTokenizerMaxJsonBytes));
  if (config) ADZE_TRY_STATUS(text::apply_tokenizer_config(*config, spec));
  ADZE_TRY(const auto model_config, read_folder_json(folder, "config.json"));
  ADZE_TRY(const auto rows, embedding_rows(model_config));
  if (rows && *rows > 0) leave_out_tokens_without_embedding(*rows, spec);
  ADZE_TRY(auto ends, read_folder_json(folder, "generation_config.json"));
  if (!ends || !ends->has("eos_token_id")) ends = model_config;
  if (ends && !ends->has("eos_token_id")) {
    ADZE_TRY(ends, ends->object("text_config"));
  }
  if (ends) ADZE_TRY_STATUS(add_end_tokens(*ends, spec));
  return spec;
}

Result<std::shared_ptr<const text::Tokenizer>> load_folder_tokenizer(const std::filesystem::path& folder) {
  ADZE_TRY(text::TokenizerSpec spec, tokenizer_spec_from_folder(folder));
  return text::Tokenizer::create(std::move(spec));
}

Result<std::optional<std::string>> folder_chat_template(const std::filesystem::path& folder) {
  ADZE_TRY(auto source, read_if_there(folder / "chat_template.jinja", limits::kTemplateMaxSourceBytes));
  if (source) return source;
  ADZE_TRY(const auto config, read_if_there(folder / "tokenizer_config.json", limits::kTokenizerMaxJsonBytes));
  if (config) {
    ADZE_TRY(source, text::chat_template_of_tokenizer_config(*config));
  }
  if (source) return source;
  ADZE_TRY(const auto separate, read_folder_json(folder, "chat_template.json"));
  if (!separate) return std::nullopt;
  return separate->text("chat_template");
}

}  // namespace adze::model
