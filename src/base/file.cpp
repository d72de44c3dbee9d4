#include "base/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace adze {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Gives `make` names beside `target` until one is free; make returns 0 or errno. Names that this process has not given
// out before can still be there, left by one that was killed and had the same id.
template <class Make>
int make_beside(const std::filesystem::path& target, std::string& name, Make make) {
  static std::atomic<std::uint32_t> given{0};
  int error = EEXIST;
  for (int tries = 0; tries < 100 && error == EEXIST; ++tries) {
    name = fmt::format("{}.{}-{}", target.string(), ::getpid(), given.fetch_add(1));
    error = make(name.c_str());
  }
  if (error != 0) name.clear();
  return error;
}

constexpr mode_t kNewFileMode = 0666;  // less what the umask takes away

// Reads exactly `size` bytes; returns errno or 0. A file that shrank meanwhile is EIO.
int read_exactly(int fd, char* into, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(fd, into, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    into += n;
    size -= static_cast<std::size_t>(n);
  }
  return 0;
}

int write_exactly(int fd, const std::byte* from, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, from, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    from += n;
    size -= static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace

Error errno_error(int errno_value, std::string_view doing, const std::filesystem::path& path) {
  ErrorCode code = ErrorCode::io;
  std::string hint;
  if (errno_value == ENOENT || errno_value == ENOTDIR) {
    code = ErrorCode::not_found;
    hint = "check the path";
  } else if (errno_value == ENOSPC || errno_value == EDQUOT) {
    code = ErrorCode::disk_full;
    hint = "free some space and try again";
  } else if (errno_value == EACCES || errno_value == EPERM) {
    hint = "check the permissions";
  }
  return Error{code, fmt::format("cannot {} '{}': {}", doing, path.string(), std::strerror(errno_value)),
               std::move(hint)};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, MapOptions options) {
  const FileDescriptor fd(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe does not wait for a writer
  if (fd.get() < 0) return tl::unexpected(errno_error(errno, "open", path));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return tl::unexpected(errno_error(errno, "inspect", path));
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not a regular file", path.string()),
                "give the path of a file");
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<std::size_t>(info.st_size);
  if (file.size_ == 0) return file;
  // Anonymous memory and a read, or the file itself; both are unmapped the same way.
  const int flags = options.map ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  const int protection = options.map ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, file.size_, protection, flags, options.map ? fd.get() : -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("cannot map '{}' ({} bytes): {}", path.string(), file.size_, std::strerror(errno)));
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.mapped_ = true;
  file.file_backed_ = options.map && !options.lock;
  file.device_ = info.st_dev;
  file.inode_ = info.st_ino;
  if (!options.map) {
    if (const int error = read_exactly(fd.get(), static_cast<char*>(data), file.size_)) {
      return tl::unexpected(errno_error(error, "read", path));
    }
    ::mprotect(data, file.size_, PROT_READ);
  }
  if (options.lock && ::mlock(data, file.size_) != 0) {
    return fail(
        ErrorCode::out_of_memory,
        fmt::format("cannot lock {} bytes of '{}' in memory: {}", file.size_, path.string(), std::strerror(errno)),
        "raise the locked-memory limit (ulimit -l) or leave out --mlock");
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(file_backed_, other.file_backed_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (mapped_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::prefetch() const {
  if (mapped_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

void prefetch_pages(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto into = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(bytes.data()) % page);
  ::madvise(const_cast<std::byte*>(bytes.data()) - into, into + bytes.size(), MADV_WILLNEED);
}

void MappedFile::release(std::size_t offset, std::size_t size) const {
  if (!file_backed_ || offset >= size_) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + std::min(size, size_ - offset)) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

bool MappedFile::read(const std::byte* at, std::span<std::byte> into) const {
  const auto from = reinterpret_cast<std::uintptr_t>(data_), place = reinterpret_cast<std::uintptr_t>(at);
  if (!file_backed_ || place < from || place - from > size_ || into.size() > size_ - (place - from)) return false;
  const FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0 || info.st_dev != device_ || info.st_ino != inode_) return false;
  std::uint64_t offset = place - from;
  while (!into.empty()) {
    const ssize_t n = ::pread(fd.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return true;
}

void MappedFile::release_all() const {
  if (!file_backed_) return;
  ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

Result<std::string> read_model_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return fail(ErrorCode::corrupt_file, fmt::format("'{}' is not a regular file", path.string()),
                "the model's folder is damaged: get it again");
  }
  return read_file(path, max_bytes);
}

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return tl::unexpected(errno_error(errno, "open", path));
  std::string text;
  char buffer[1 << 16];
  for (;;) {  // a pipe has no size: read until its end
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "read", path));
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > max_bytes) {
      return fail(ErrorCode::limit_exceeded, fmt::format("'{}' is larger than {} bytes", path.string(), max_bytes));
    }
  }
}

AtomicFile::AtomicFile(int fd, std::filesystem::path path, std::string temporary, Replace replace)
    : fd_(fd), replace_(replace), path_(std::move(path)), temporary_(std::move(temporary)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      replace_(other.replace_),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      written_(other.written_) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path, Replace replace) {
  // A rename would put a file in the place of a device or a pipe: as root, /dev/null itself.
  std::error_code ignored;
  const bool by_name = replace == Replace::name;
  const auto status = by_name ? std::filesystem::symlink_status(path, ignored) : std::filesystem::status(path, ignored);
  const bool is_link = by_name && std::filesystem::is_symlink(status);
  if (std::filesystem::exists(status) && !is_link && !std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' is not a regular file and cannot be replaced", path.string()), "Name a file.");
  }
  // Through a link, the file that it names is replaced, not the link.
  std::filesystem::path target =
      !by_name && std::filesystem::is_symlink(path, ignored) ? std::filesystem::weakly_canonical(path, ignored) : path;
  if (target.empty()) target = path;
  // Without a name until it is whole, so that a process killed on the way leaves nothing behind. Not every file system
  // has such files.
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  std::string temporary;
  int fd = -1;
#ifdef O_TMPFILE
  if (::access("/proc/self/fd", X_OK) == 0) fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kNewFileMode);
#endif
  if (fd < 0) {
    const int error = make_beside(target, temporary, [&](const char* name) {
      fd = ::open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kNewFileMode);
      return fd < 0 ? errno : 0;
    });
    if (error != 0) return tl::unexpected(errno_error(error, "create a file beside", path));
  }
  return AtomicFile(fd, std::move(target), std::move(temporary), replace);
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  if (const int error = write_exactly(fd_, bytes.data(), bytes.size())) {
    return tl::unexpected(errno_error(error, "write", path_));
  }
  written_ += bytes.size();
  return {};
}

Status AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "write", path_));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

void AtomicFile::write_back([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::uint64_t bytes,
                            [[maybe_unused]] WriteBack how) const {
#ifdef SYNC_FILE_RANGE_WRITE
  const unsigned flags = how == WriteBack::begin
                             ? SYNC_FILE_RANGE_WRITE
                             : SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  ::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), flags);
#endif
}

Status AtomicFile::write(std::string_view text) { return write(std::as_bytes(std::span(text.data(), text.size()))); }

Status AtomicFile::commit() {
  int error = 0;
  struct stat replaced{};
  if (replace_ == Replace::file && ::stat(path_.c_str(), &replaced) == 0 &&
      ::fchmod(fd_, replaced.st_mode & 07777) != 0)
    error = errno;
  if (error == 0 && ::fsync(fd_) != 0) error = errno;
  if (error == 0 && temporary_.empty()) {
    const std::string file = fmt::format("/proc/self/fd/{}", fd_);
    error = make_beside(path_, temporary_, [&](const char* name) {
      return ::linkat(AT_FDCWD, file.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) != 0 ? errno : 0;
    });
  }
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) return tl::unexpected(errno_error(error, "write", path_));
  ::close(std::exchange(fd_, -1));
  return {};
}

Status require_free_space(const std::filesystem::path& path, std::uint64_t bytes) {
  std::error_code error;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::filesystem::space_info disk = std::filesystem::space(folder, error);
  if (error || bytes <= disk.available) return {};
  constexpr double kMegabyte = 1e6;
  return fail(ErrorCode::disk_full,
              fmt::format("'{}' needs {:.1f} MB and its disk has {:.1f} MB free", path.string(),
                          static_cast<double>(bytes) / kMegabyte, static_cast<double>(disk.available) / kMegabyte),
              "free some space, or name a file on another disk");
}

Status write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes,
                         AtomicFile::Replace replace) {
  ADZE_TRY(AtomicFile file, AtomicFile::create(path, replace));
  ADZE_TRY_STATUS(file.write(bytes));
  return file.commit();
}

Status write_file_atomic(const std::filesystem::path& path, std::string_view text, AtomicFile::Replace replace) {
  return write_file_atomic(path, std::as_bytes(std::span(text.data(), text.size())), replace);
}

}  // namespace adze
