// The tokenizer and the chat template of a Hugging Face folder: tokenizer.json, tokenizer_config.json,
// generation_config.json, chat_template.jinja.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "format/json.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::model {

// One of the folder's small JSON files; nothing where it is not there. Errors: io, limit_exceeded, those of
// JsonObject::parse.
Result<std::optional<format::JsonObject>> read_folder_json(const std::filesystem::path& folder, const char* name);

// Tokens that end an answer are those that generation_config.json lists, or config.json where that is silent. Errors:
// not_found (no tokenizer.json), those of text/tokenizer_json.hpp, corrupt_file (an end token that there is not).
Result<text::TokenizerSpec> tokenizer_spec_from_folder(const std::filesystem::path& folder);
// The same, ready to run. Errors: also those of Tokenizer::create.
Result<std::shared_ptr<const text::Tokenizer>> load_folder_tokenizer(const std::filesystem::path& folder);

// The Jinja source: chat_template.jinja, else the template in tokenizer_config.json, else the one in
// chat_template.json. Errors: io, limit_exceeded, corrupt_file.
Result<std::optional<std::string>> folder_chat_template(const std::filesystem::path& folder);

}  // namespace adze::model
