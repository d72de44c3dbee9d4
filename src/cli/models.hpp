// From what a person typed for MODEL to a file or a folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "cli/context.hpp"
#include "text/tokenizer.hpp"

namespace adze::cli {

// getenv, for the rooms that read no environment of their own.
const char* environment_variable(const char* name);

// The directory of pulled models: the setting models_dir, or the hub room's own choice.
Result<std::filesystem::path> models_directory(const Settings& settings);

// The directory of pack files (backend/pack_directory.hpp); empty where nothing says where it could be.
std::filesystem::path pack_directory(const Settings& settings);
// Where adze tune keeps profiles; empty as the other.
std::filesystem::path profile_directory(const Settings& settings);

// A path that exists (a file, or a Hugging Face folder), or the name of a pulled model. Errors: not_found, saying how
// to get one.
Result<std::filesystem::path> find_model(const Context& context, const std::string& name);

// The tokenizer of a model file or folder, of a vocabulary-only GGUF or of a tokenizer.json (its tokenizer_config.json
// beside it is read as well). Errors: those of the formats and of Tokenizer::create.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::filesystem::path& path);

}  // namespace adze::cli
