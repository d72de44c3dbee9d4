// Fast 128-bit digests (XXH3) for cache keys, routes and logits. Not for security: downloads use SHA-256.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace adze {

struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  auto operator<=>(const Digest&) const = default;
};

Digest digest(std::span<const std::byte> bytes);
Digest digest(std::string_view text);
std::string to_hex(Digest digest);  // 32 lower-case digits

}  // namespace adze
