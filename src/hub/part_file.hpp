// A download under way: NAME.part holds its first bytes, NAME.part.from says of what. They stay when a download breaks
// off, so that the next one goes on; the name itself appears only when every byte is there and checked. One process at
// a time: the part is locked. Not thread-safe.
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

class PartFile {
 public:
  // Makes the folders on the way. Errors: io, disk_full; invalid_argument when another process is at it.
  static Result<PartFile> open(const std::filesystem::path& target);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();

  const std::filesystem::path& target() const { return target_; }
  std::uint64_t size() const { return size_; }
  const RemoteVersion& version() const { return version_; }

  // Takes up the bytes that are there: hashes them. Errors: io, cancelled.
  Status resume(const ProgressCallback& progress);
  // Drops the bytes that are there and starts on this version.
  Status restart(RemoteVersion version);
  Status append(std::span<const std::byte> bytes);
  std::string sha256() { return hash_.hex(); }  // of all bytes, once, at the end

  // Syncs and renames to the target.
  Status commit();
  // Removes what is there: it is worth nothing.
  void discard();

 private:
  PartFile(std::filesystem::path target, int fd, Sha256 hash);
  std::filesystem::path part_path() const;
  std::filesystem::path version_path() const;

  std::filesystem::path target_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  RemoteVersion version_;
  Sha256 hash_;
};

}  // namespace adze::hub
