#include "hub/part_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::hub {
namespace {

constexpr const char* kVersionSuffix = ".from";

std::filesystem::path with_suffix(const std::filesystem::path& path, const char* suffix) {
  return path.string() + suffix;
}

// One value a line; header values hold no line breaks.
std::string to_text(const RemoteVersion& version) {
  return fmt::format("{}\n{}\n{}\n{}\n", version.url, version.etag, version.last_modified, version.size);
}

RemoteVersion from_text(std::string_view text) {
  const auto next_line = [&] {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return std::string(line);
  };
  RemoteVersion version{next_line(), next_line(), next_line(), 0};
  const std::string size = next_line();
  std::from_chars(size.data(), size.data() + size.size(), version.size);
  return version;
}

// Locks the file that the path names at that moment: one that a finished download has renamed meanwhile is let go.
Result<int> open_locked(const std::filesystem::path& path) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return tl::unexpected(errno_error(errno, "create", path));
    struct stat ours{};
    struct stat named{};
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(fd);
      if (error != EWOULDBLOCK) return tl::unexpected(errno_error(error, "lock", path));
      return fail(ErrorCode::invalid_argument,
                  fmt::format("another download of '{}' is under way", path.stem().string()),
                  "wait for it, or stop it first");
    }
    if (::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino) return fd;
    ::close(fd);
  }
}

}  // namespace

std::string RemoteVersion::validator() const {
  const bool strong = !etag.empty() && !etag.starts_with("W/");
  return strong ? etag : last_modified;
}

PartFile::PartFile(std::filesystem::path target, int fd, Sha256 hash)
    : target_(std::move(target)), fd_(fd), hash_(std::move(hash)) {}

PartFile::PartFile(PartFile&& other) noexcept
    : target_(std::move(other.target_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      gained_(other.gained_),
      version_(std::move(other.version_)),
      hash_(std::move(other.hash_)) {}

PartFile::~PartFile() {
  if (fd_ < 0) return;
  if (size_ == 0) {
    discard();
  } else {
    ::close(fd_);
  }
}

std::string origin_of(const std::filesystem::path& file) {
  const auto text = read_file(with_suffix(file, kVersionSuffix), limits::kMaxHubNoteBytes);
  return text ? from_text(*text).url : std::string();
}

std::filesystem::path PartFile::part_path() const { return with_suffix(target_, ".part"); }
std::filesystem::path PartFile::version_path() const { return with_suffix(target_, kVersionSuffix); }

Result<PartFile> PartFile::open(const std::filesystem::path& target) {
  ADZE_TRY(Sha256 hash, Sha256::create());
  std::error_code error;
  std::filesystem::create_directories(target.parent_path(), error);
  if (error) return tl::unexpected(errno_error(error.value(), "create the folder", target.parent_path()));
  ADZE_TRY(const int fd, open_locked(with_suffix(target, ".part")));
  PartFile part(target, fd, std::move(hash));
  struct stat info{};
  if (::fstat(fd, &info) == 0) part.size_ = static_cast<std::uint64_t>(info.st_size);
  if (const auto text = read_file(part.version_path(), limits::kMaxHubNoteBytes)) part.version_ = from_text(*text);
  return part;
}

Status PartFile::resume(const ProgressCallback& progress) {
  hash_.reset();
  const std::string name = target_.filename().string();
  std::string buffer(std::size_t{1} << 20, '\0');
  std::uint64_t at = 0;
  while (at < size_) {
    if (progress && !progress({Stage::verifying, name, at, size_})) {
      return fail(ErrorCode::cancelled, fmt::format("the download of '{}' was cancelled", name));
    }
    const ssize_t n =
        ::pread(fd_, buffer.data(), std::min<std::uint64_t>(buffer.size(), size_ - at), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return tl::unexpected(errno_error(n < 0 ? errno : EIO, "read", part_path()));
    hash_.update(std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(n))));
    at += static_cast<std::uint64_t>(n);
  }
  if (::lseek(fd_, static_cast<off_t>(size_), SEEK_SET) < 0)
    return tl::unexpected(errno_error(errno, "read", part_path()));
  return {};
}

Status PartFile::restart(RemoteVersion version) {
  // The old bytes go before the new version is written down: a crash between the two must not join them.
  if (size_ != 0 && ::ftruncate(fd_, 0) != 0) return tl::unexpected(errno_error(errno, "empty", part_path()));
  ::lseek(fd_, 0, SEEK_SET);
  size_ = 0;
  hash_.reset();
  version_ = std::move(version);
  return write_file_atomic(version_path(), to_text(version_));
}

Status PartFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Error error = errno_error(errno, "write", part_path());
      if (error.code == ErrorCode::disk_full)
        error.hint = "free some space and run the command again: it will go on from here";
      return tl::unexpected(std::move(error));
    }
    hash_.update(bytes.first(static_cast<std::size_t>(n)));
    size_ += static_cast<std::uint64_t>(n);
    gained_ = true;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status PartFile::commit() {
  if (::fsync(fd_) != 0) return tl::unexpected(errno_error(errno, "write", part_path()));
  if (::rename(part_path().c_str(), target_.c_str()) != 0) return tl::unexpected(errno_error(errno, "create", target_));
  ::close(std::exchange(fd_, -1));
  return {};
}

void PartFile::discard() {
  ::unlink(part_path().c_str());
  ::unlink(version_path().c_str());
  ::close(std::exchange(fd_, -1));
}

}  // namespace adze::hub
