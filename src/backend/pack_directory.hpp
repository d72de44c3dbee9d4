// The directory of pack files: what is in it, who may write to it, and what goes when it is full. A pack in use may be
// removed: who has it mapped keeps it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/pack_file.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"

namespace adze::backend {

// The file of a key in `directory`.
std::filesystem::path pack_path(const std::filesystem::path& directory, Digest key);

// The file as it is now, by its whole path; nothing where it cannot be looked at.
std::optional<PackSource> describe_source(const std::filesystem::path& file);

// Whether a pack's model is still what was packed.
enum class PackCondition : std::uint8_t {
  current,
  changed,   // the model's files are not what they were
  orphaned,  // they are not where they were
  damaged,   // the pack's header says nothing that can be believed; or left over from a process that was killed
};
std::string_view condition_name(PackCondition condition);

struct StoredPack {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::filesystem::file_time_type last_used;
  PackCondition condition = PackCondition::damaged;
  PackHeader header{};  // empty where damaged
};

// The last used first. A directory that is not there holds none; files that are no packs are left out. Error: io.
Result<std::vector<StoredPack>> list_packs(const std::filesystem::path& directory);

// Says that a pack is used now. A hint.
void mark_used(const std::filesystem::path& pack);

// The right to write packs here: one process at a time, so that no work is done twice and the budget holds. Given back
// by the destructor, also by that of a process that is killed.
class PackDirectoryLock {
 public:
  // Makes the directory where it is not there. Nothing while somebody else has it; on file systems without locks,
  // everybody has it. Errors: io.
  static Result<std::optional<PackDirectoryLock>> try_lock(const std::filesystem::path& directory);
  PackDirectoryLock(PackDirectoryLock&& other) noexcept;
  PackDirectoryLock& operator=(PackDirectoryLock&& other) noexcept;
  ~PackDirectoryLock();

 private:
  explicit PackDirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

// Makes room for a pack of `bytes` bytes at `path`: first packs of models that have changed and what was left over,
// then the longest unused, until all fit into the budget. Nothing is removed where that cannot be reached. The lock is
// held. Errors: limit_exceeded (larger than the budget), disk_full (less than limits::kPackKeepFreeBytes would be
// left).
Status make_room(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t budget_bytes);

}  // namespace adze::backend
