#include "cli/output_file.hpp"

#include <fmt/format.h>

#include "format/gguf.hpp"

namespace adze::cli {

Result<std::vector<std::filesystem::path>> files_of_model(const std::filesystem::path& model) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_directory(model, error)) {
    for (std::filesystem::directory_iterator at(model, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() != ".gguf") files.push_back(at->path());
    }
    if (!error) return files;
    return fail(ErrorCode::io, fmt::format("cannot list '{}': {}", model.string(), error.message()));
  }
  ADZE_TRY(const format::GgufFile file, format::GgufFile::open(model));
  for (const format::GgufShard& shard : file.shards()) files.push_back(shard.map.path());
  return files;
}

Status check_output(const Context& context, const std::filesystem::path& out,
                    const std::vector<std::filesystem::path>& inputs, std::string_view hint) {
  std::error_code ignored;
  for (const std::filesystem::path& input : inputs) {
    if (!std::filesystem::equivalent(input, out, ignored)) continue;
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is one of the files that are read", out.string()),
                "Give the output another name.");
  }
  if (std::filesystem::exists(out, ignored) && !context.arguments.has("force"))
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' exists", out.string()), std::string(hint));
  return {};
}

}  // namespace adze::cli
