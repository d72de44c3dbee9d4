// A pack file: a model's weights in the order in which a backend's kernels read them. It is made once, mapped read-only
// by every process that runs the model, and may be thrown away at any time. docs/design/0013-pack-files.md.
//
//   0               header: magic, version, sizes, its checksum, then key, layout, model, sources and one entry for
//                   each weight
//   payload_offset  (a multiple of 2 MiB, so that huge pages can map it) the weights, each at a multiple of 64
//
// Numbers stand in the byte order of the machine: a pack never leaves it, and another order is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/packs.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"

namespace adze::backend {

inline constexpr std::uint64_t kPackAlignment = 64;
inline constexpr std::uint64_t kPackPayloadAlignment = 2u << 20;

// A weight: `groups` pieces of `group_bytes` bytes, one behind the other.
struct PackEntry {
  std::string name;
  std::uint64_t offset = 0;       // in the file, a multiple of 64
  std::uint64_t group_bytes = 0;  // a multiple of 64
  std::uint64_t groups = 0;
  Digest content{};  // over the digests of the groups
  std::uint64_t bytes() const { return group_bytes * groups; }
};

struct PackHeader {
  Digest key{};        // of all that the payload depends on
  std::string layout;  // the order of bytes, by its name
  std::string model;
  std::vector<PackSource> sources;
  std::vector<PackEntry> entries;
  std::uint64_t payload_offset = 0;
  std::uint64_t file_bytes = 0;
};

// Gives every entry its offset, and the file its size. Errors: limit_exceeded where a number is beyond those that a
// reader takes.
Status lay_out(PackHeader& header);

// Of a header that is laid out.
std::string serialise(const PackHeader& header);

// The header of a file of `file_bytes` bytes, of which `bytes` are the first: every number is checked, and the header's
// checksum, but no byte of the payload is read. Errors: not_a_model (something else), corrupt_file, unsupported_feature
// (another version or byte order), limit_exceeded.
Result<PackHeader> parse_pack_header(std::span<const std::byte> bytes, std::uint64_t file_bytes);

// Maps the file and parses its header. Errors: those of both.
Result<PackHeader> read_pack_header(const std::filesystem::path& path);

// Reads the whole file and compares every weight with its checksum; `go_on` false ends that (cancelled). Errors: those
// of read_pack_header; corrupt_file, naming the weight.
Status verify_pack(const std::filesystem::path& path, const std::function<bool()>& go_on);

}  // namespace adze::backend
