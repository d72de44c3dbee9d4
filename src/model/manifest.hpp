// model-manifest.json: what a model is, in one file that a person and a program can read, and that must agree with the
// model's files wherever it lies beside them. Schema: docs/model-manifest.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "format/weight_store.hpp"
#include "model/hyperparameters.hpp"
#include "model/registry.hpp"

namespace adze::model {

// FOLDER/model-manifest.json, or FILE.manifest.json beside a GGUF file.
std::filesystem::path manifest_path(const std::filesystem::path& model);

// A model as its files say it is, without a caller's overrides; Model::manifest_source() makes it.
struct ManifestSource {
  const Family& family;
  Hyperparameters parameters;
  const format::WeightStore& store;
};

// The manifest as JSON, with a digest of every tensor: reads all weights. Errors: limit_exceeded.
Result<std::string> write_manifest(const ManifestSource& source);

enum class ManifestCheck : std::uint8_t {
  structure,  // everything but the tensors' bytes
  bytes,      // and these: reads all weights
};
// Whether a manifest says what the files say. `name` is used in messages. Errors: corrupt_file (no JSON; a field that
// is missing, unknown or says something else, naming it and both values), unsupported_feature (another major version).
Status check_manifest(const ManifestSource& source, std::string_view text, std::string_view name, ManifestCheck check);

// The same for the manifest beside the model's files, if there is one. Errors: also io, limit_exceeded.
Status check_manifest_beside(const ManifestSource& source, ManifestCheck check);

}  // namespace adze::model
