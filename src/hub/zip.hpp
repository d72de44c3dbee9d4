// Zip archives, as far as Python wheels use them: stored or deflated members, no encryption, no zip64. Mapped; every
// offset and size is checked against the file, and what comes out against the size and CRC-32 that the archive
// declares.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "hub/progress.hpp"

namespace adze::hub {

struct ZipMember {
  std::string name;
  std::uint16_t method = 0;  // 0 stored, 8 deflated
  std::uint32_t crc = 0;
  std::uint64_t size = 0;  // unpacked
  std::uint64_t packed_size = 0;
  std::uint64_t header_offset = 0;
};

class ZipArchive {
 public:
  // Errors: not_found, io, corrupt_file, unsupported_feature (zip64, encryption, other methods), naming the archive.
  static Result<ZipArchive> open(const std::filesystem::path& path);
  std::span<const ZipMember> members() const { return members_; }
  // The member of this name; null if there is none.
  const ZipMember* find(std::string_view name) const;
  // Hands the member's bytes to `sink` in pieces, and checks them at the end: a failing Status means that what the sink
  // has got is worth nothing. Errors: corrupt_file, and those of the sink.
  using Sink = std::function<Status(std::span<const std::byte>)>;
  Status unpack(const ZipMember& member, const Sink& sink) const;

 private:
  Result<std::span<const std::byte>> packed_bytes(const ZipMember& member) const;
  MappedFile map_;
  std::vector<ZipMember> members_;
};

}  // namespace adze::hub
