// model-manifest.json: written, or compared with the model's files.
#include "model/manifest.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/models.hpp"
#include "cli/output_file.hpp"
#include "model/model.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"MODEL", "A model folder or a GGUF file, or the name of a pulled model"}};
constexpr Option kOptions[] = {
    {"--check", "", "Write nothing: compare the manifest with the files, digests of all tensors included", ""},
    {"--force", "", "Replace a manifest that exists", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::hub};
constexpr Example kExamples[] = {
    {"adze manifest Qwen3-0.6B", "Write Qwen3-0.6B/model-manifest.json"},
    {"adze manifest Qwen3-0.6B --check", "See whether a single byte of the weights has changed"},
};

Status check(const model::ManifestSource& source, const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return fail(ErrorCode::not_found, fmt::format("there is no '{}'", path.string()),
                "adze manifest without --check writes it.");
  }
  return model::check_manifest_beside(source, model::ManifestCheck::bytes);
}

Result<ExitCode> run_manifest(Context& context) {
  ADZE_TRY(const std::filesystem::path model_path, find_model(context, *context.arguments.positional(0)));
  ADZE_TRY(const model::Model model, model::Model::load(model_path, {.check_manifest = false}));
  const model::ManifestSource source = model.manifest_source();
  const std::filesystem::path path = model::manifest_path(model.weights().path());
  if (context.arguments.has("check")) {
    ADZE_TRY_STATUS(check(source, path));
    context.console.note(fmt::format("'{}' agrees with the files", path.string()));
    return ExitCode::ok;
  }
  ADZE_TRY_STATUS(
      check_output(context, path, {}, "Give --check to compare it with the files, or --force to replace it."));
  // The name comes with the model, not from the user: a link there could aim at any file.
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is a link, which came with the model", path.string()),
                "remove it first");
  }
  ADZE_TRY(const std::string manifest, model::write_manifest(source));
  ADZE_TRY_STATUS(write_file_atomic(path, manifest));
  context.console.print(fmt::format("{}\n", path.string()));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kManifest{
    .name = "manifest",
    .summary = "Write or check model-manifest.json, which says what a model is",
    .description =
        "Writes sizes, constants, layers and a digest of every tensor to model-manifest.json in the folder, "
        "or to FILE.manifest.json beside a GGUF file. Where one lies there, the model is only loaded when "
        "both agree.",
    .positionals = kPositionals,
    .options = kOptions,
    .settings = kSettings,
    .examples = kExamples,
    .run = run_manifest};

}  // namespace adze::cli
