// The header of one GGUF file, parsed and checked. Inside the room only: others use gguf.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "format/metadata.hpp"

namespace adze::format {

struct GgufHeader {
  std::uint32_t version = 0;
  std::uint32_t alignment = 0;
  std::uint64_t data_offset = 0;
  Metadata metadata;
  std::vector<GgufTensor> tensors;  // views into `bytes`; shard 0
};

// `name` is the file's name in messages. Errors: those of GgufFile::open, less the system's.
Result<GgufHeader> read_gguf_header(std::span<const std::byte> bytes, std::string_view name);

}  // namespace adze::format
