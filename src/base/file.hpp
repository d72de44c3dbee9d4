// Files: read-only maps, whole-file reads, atomic writes. Not thread-safe per object; distinct objects are independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace adze {

struct MapOptions {
  bool map = true;    // false: read the file into anonymous memory instead (--no-mmap)
  bool lock = false;  // mlock the bytes (--mlock); refused by the system is an error that names the limit
};

// The bytes of a file, read-only, for the life of the object. Movable; the bytes do not move.
class MappedFile {
 public:
  // Errors: not_found, io, out_of_memory. An empty file is a valid map of zero bytes.
  static Result<MappedFile> open(const std::filesystem::path& path, MapOptions options = {});
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Starts reading the bytes into the page cache; a hint, never an error.
  void prefetch() const;
  // Lets the system take back the whole pages of [offset, offset + size): they are read from the file again when
  // touched. A hint, for bytes that were read once (a vocabulary); does nothing where the file was not mapped.
  void release(std::size_t offset, std::size_t size) const;
  // The same for all of them.
  void release_all() const;
  // Copies the bytes at `at`, which lie in bytes(), without touching the map: a page that is touched comes with up to
  // 2 MiB of neighbours, which count as this process's memory. False, and nothing is copied, where the file was not
  // mapped or another one has its name now.
  bool read(const std::byte* at, std::span<std::byte> into) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;       // there is memory to unmap
  bool file_backed_ = false;  // and its pages are the file's, not locked
  std::uint64_t device_ = 0, inode_ = 0;
  std::filesystem::path path_;
};

// Starts reading the pages of these bytes, if they are a file's, and does not wait: for a few of many, which would be
// read one after the other as they are touched. A hint.
void prefetch_pages(std::span<const std::byte> bytes);

// The whole file. Errors: not_found, io, limit_exceeded when it is larger than max_bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);
// The same for a part of a model, which is a file on a disk: a pipe is refused, not waited for (corrupt_file).
Result<std::string> read_model_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// A file that comes into being whole: bytes go to a file on the same disk that has no name yet (where the file system
// has such files, else to a temporary beside `path`), commit() syncs it and puts it in the place of `path`. Destroyed
// without commit, it leaves nothing behind and the old file, if any, untouched. A new file has the permissions that the
// umask leaves, a replaced one keeps its own. Errors: io, disk_full, invalid_argument where `path` is there and is no
// regular file.
//
// Where the name is a link: `file` replaces the file that it names, as whoever named it expects. `name` is for files of
// our own making, in folders where others may put links: the entry itself is replaced, whatever it was, and its
// permissions are a new file's.
class AtomicFile {
 public:
  enum class Replace : std::uint8_t { file, name };
  static Result<AtomicFile> create(const std::filesystem::path& path, Replace replace = Replace::file);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  std::uint64_t written() const { return written_; }
  // At a place of its own, also behind the end; places that are never written read as zeros. Not counted by written().
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Begins to send this part to the disk, or waits until that is done, so that commit() has little left to wait for.
  // A hint.
  enum class WriteBack : std::uint8_t { begin, wait };
  void write_back(std::uint64_t offset, std::uint64_t bytes, WriteBack how) const;
  Status commit();  // nothing may be written afterwards

 private:
  AtomicFile(int fd, std::filesystem::path path, std::string temporary, Replace replace);
  int fd_ = -1;
  Replace replace_ = Replace::file;
  std::filesystem::path path_;
  std::string temporary_;
  std::uint64_t written_ = 0;
};

// Whether the disk of `path`, which need not exist, has room for a file of this size. Errors: disk_full, with both
// numbers; nothing is said where the system does not know.
Status require_free_space(const std::filesystem::path& path, std::uint64_t bytes);

// An AtomicFile of these bytes: the name holds the old ones or all of the new ones.
// Errors: io, disk_full. Nothing is left behind on failure.
Status write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes,
                         AtomicFile::Replace replace = AtomicFile::Replace::file);
Status write_file_atomic(const std::filesystem::path& path, std::string_view text,
                         AtomicFile::Replace replace = AtomicFile::Replace::file);

// The Error for a failed system call: not_found for ENOENT, disk_full for ENOSPC/EDQUOT, else io.
Error errno_error(int errno_value, std::string_view doing, const std::filesystem::path& path);

}  // namespace adze
