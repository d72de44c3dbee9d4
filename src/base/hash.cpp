#include "base/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

namespace adze {

Digest digest(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

Digest digest(std::string_view text) { return digest(std::as_bytes(std::span(text.data(), text.size()))); }

std::string to_hex(Digest d) { return fmt::format("{:016x}{:016x}", d.high, d.low); }

}  // namespace adze
