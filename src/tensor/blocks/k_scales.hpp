// The 12 bytes in which Q4_K and Q5_K keep eight 6-bit scales s0..s7 and eight 6-bit minima m0..m7:
//   bytes 0..3   s0..s3 in the low six bits, the top two bits of s4..s7 above them
//   bytes 4..7   m0..m3 in the low six bits, the top two bits of m4..m7 above them
//   bytes 8..11  the low four bits of s4..s7, and of m4..m7 in the high nibble
#pragma once

#include <cstdint>

namespace adze::tensor::blocks {

struct ScaleAndMinimum {
  std::uint8_t scale;
  std::uint8_t minimum;
};

inline ScaleAndMinimum unpack_k_scale(const std::uint8_t* packed, int group) {
  if (group < 4) {
    return {static_cast<std::uint8_t>(packed[group] & 63), static_cast<std::uint8_t>(packed[group + 4] & 63)};
  }
  const int low = packed[group + 4];
  return {static_cast<std::uint8_t>((low & 15) | ((packed[group - 4] >> 6) << 4)),
          static_cast<std::uint8_t>((low >> 4) | ((packed[group] >> 6) << 4))};
}

// Groups 0..7, each below 64.
inline void pack_k_scales(const ScaleAndMinimum* groups, std::uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    const ScaleAndMinimum first = groups[i];
    const ScaleAndMinimum second = groups[i + 4];
    packed[i] = static_cast<std::uint8_t>(first.scale | ((second.scale >> 4) << 6));
    packed[i + 4] = static_cast<std::uint8_t>(first.minimum | ((second.minimum >> 4) << 6));
    packed[i + 8] = static_cast<std::uint8_t>((second.scale & 15) | ((second.minimum & 15) << 4));
  }
}

}  // namespace adze::tensor::blocks
