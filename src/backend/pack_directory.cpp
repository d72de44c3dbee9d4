#include "backend/pack_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::backend {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".pack";

PackCondition condition_of(const PackHeader& header) {
  for (const PackSource& source : header.sources) {
    const std::optional<PackSource> now = describe_source(source.path);
    if (!now) return PackCondition::orphaned;
    if (*now != source) return PackCondition::changed;
  }
  return PackCondition::current;
}

bool worthless(const StoredPack& pack) {
  switch (pack.condition) {
    case PackCondition::changed:
    case PackCondition::damaged: return true;
    case PackCondition::current:
    case PackCondition::orphaned: return false;  // a disk that is not mounted now
  }
  ADZE_CHECK(false, "condition {}", static_cast<int>(pack.condition));
}

}  // namespace

fs::path pack_path(const fs::path& directory, Digest key) {
  return directory / (to_hex(key) + std::string(kExtension));
}

std::optional<PackSource> describe_source(const fs::path& file) {
  std::error_code error;
  PackSource source{.path = fs::absolute(file, error)};
  if (!error) source.bytes = fs::file_size(file, error);
  if (!error) {
    const auto modified = fs::last_write_time(file, error).time_since_epoch();
    source.modified_ns = std::chrono::nanoseconds(modified).count();
  }
  if (error) return std::nullopt;
  return source;
}

std::string_view condition_name(PackCondition condition) {
  switch (condition) {
    case PackCondition::current: return "current";
    case PackCondition::changed: return "changed";
    case PackCondition::orphaned: return "orphaned";
    case PackCondition::damaged: return "damaged";
  }
  return "";
}

Result<std::vector<StoredPack>> list_packs(const fs::path& directory) {
  std::vector<StoredPack> packs;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    // KEY.pack, or KEY.pack.PROCESS-NUMBER: an AtomicFile on its way, or what is left of one.
    const std::string name = entry->path().filename().string();
    const auto extension = name.find(kExtension);
    std::error_code gone;
    if (extension != 2 * sizeof(Digest) || !entry->is_regular_file(gone)) continue;
    StoredPack pack{.path = entry->path(), .bytes = entry->file_size(gone), .last_used = entry->last_write_time(gone)};
    if (gone) continue;
    if (name.ends_with(kExtension)) {
      if (auto header = read_pack_header(pack.path)) {
        pack.header = std::move(*header);
        pack.condition = condition_of(pack.header);
      }
    }
    packs.push_back(std::move(pack));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return tl::unexpected(errno_error(error.value(), "read the folder", directory));
  }
  std::ranges::sort(packs, std::ranges::greater(), &StoredPack::last_used);
  return packs;
}

void mark_used(const fs::path& pack) { ::utimensat(AT_FDCWD, pack.c_str(), nullptr, 0); }

Result<std::optional<PackDirectoryLock>> PackDirectoryLock::try_lock(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return tl::unexpected(errno_error(error.value(), "create", directory));
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return tl::unexpected(errno_error(errno, "open", directory));
  PackDirectoryLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::optional<PackDirectoryLock>();
  return std::optional<PackDirectoryLock>(std::move(lock));
}

PackDirectoryLock::PackDirectoryLock(PackDirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

PackDirectoryLock& PackDirectoryLock::operator=(PackDirectoryLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

PackDirectoryLock::~PackDirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

Status make_room(const fs::path& path, std::uint64_t bytes, std::uint64_t budget_bytes) {
  if (bytes > budget_bytes) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("packed weights of {:.1f} MB are more than the {:.1f} MB that pack files may have",
                            static_cast<double>(bytes) / 1e6, static_cast<double>(budget_bytes) / 1e6),
                "raise pack_budget, or switch packs off");
  }
  ADZE_TRY(std::vector<StoredPack> packs, list_packs(path.parent_path()));
  std::erase_if(packs, [&](const StoredPack& pack) { return pack.path == path; });  // it is replaced
  std::ranges::stable_partition(packs, [](const StoredPack& pack) { return !worthless(pack); });
  std::uint64_t kept = 0;
  for (const StoredPack& pack : packs) kept += pack.bytes;
  std::uint64_t freed = 0;
  std::size_t keep = packs.size();
  while (keep > 0 && (kept > budget_bytes - bytes || worthless(packs[keep - 1]))) {
    --keep;
    kept -= packs[keep].bytes;
    freed += packs[keep].bytes;
  }
  const std::uint64_t wanted = bytes + limits::kPackKeepFreeBytes;
  ADZE_TRY_STATUS(require_free_space(path, wanted > freed ? wanted - freed : 0));
  std::error_code ignored;
  for (std::size_t i = keep; i < packs.size(); ++i) fs::remove(packs[i].path, ignored);
  return {};
}

}  // namespace adze::backend
