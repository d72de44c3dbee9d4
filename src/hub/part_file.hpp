// A download under way: NAME.part holds its first bytes, NAME.from says of what. They stay when a download breaks off,
// so that the next one goes on; the name itself appears only when every byte is there and checked, and NAME.from stays
// beside it. One process at a time: the part is locked. Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.hpp"
#include "hub/progress.hpp"
#include "hub/sha256.hpp"

namespace adze::hub {

// What tells one version of a remote file from another.
struct RemoteVersion {
  std::string url;
  std::string etag;
  std::string last_modified;
  std::uint64_t size = 0;  // 0: the server did not say

  // The value for If-Range: a strong ETag or a date; empty when the server gave neither, and nothing can be resumed.
  std::string validator() const;
};

// What a complete file was downloaded from; empty where nothing says so.
std::string origin_of(const std::filesystem::path& file);

class PartFile {
 public:
  // Makes the folders on the way. A part that is empty at the end of its life is removed. Errors: io, disk_full;
  // invalid_argument when another process is at it.
  static Result<PartFile> open(const std::filesystem::path& target);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();

  const std::filesystem::path& target() const { return target_; }
  std::uint64_t size() const { return size_; }
  // Bytes have come since open().
  bool gained() const { return gained_; }
  const RemoteVersion& version() const { return version_; }

  // Takes up the bytes that are there: hashes them. Errors: io, cancelled.
  Status resume(const ProgressCallback& progress);
  // Drops the bytes that are there and starts on this version.
  Status restart(RemoteVersion version);
  Status append(std::span<const std::byte> bytes);
  std::string sha256() { return hash_.hex(); }  // of all bytes, once, at the end

  // Syncs and renames to the target.
  Status commit();
  // Removes what is there: it is worth nothing. The last call, as commit() is.
  void discard();

 private:
  PartFile(std::filesystem::path target, int fd, Sha256 hash);
  std::filesystem::path part_path() const;
  std::filesystem::path version_path() const;

  std::filesystem::path target_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  bool gained_ = false;
  RemoteVersion version_;
  Sha256 hash_;
};

}  // namespace adze::hub
