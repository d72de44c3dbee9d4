// Counter-based randomness: every number is a pure function of (seed, position, token), so a draw depends on no other
// draw, nor on how many were made, by which thread, or in which batch (DESIGN.md section 8).
//
// The generator is SplitMix64 read as a counter generator (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014): output n of the stream with start s is mix64(s + n * kGolden). The start of a position's
// stream is itself such an output, so streams are unrelated points of one cycle of 2^64.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace adze::sample {

inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;  // odd, 2^64 / golden ratio

// Stafford's variant 13 of MurmurHash3's finaliser, the one of SplitMix64; a bijection.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The random bits of one position, addressed by token id. Immutable, trivially copied.
class PositionNoise {
 public:
  constexpr PositionNoise(std::uint64_t seed, std::uint64_t position)
      : start_(mix64(mix64(seed + kGolden) + (position + 1) * kGolden)) {}

  // 64 independent bits.
  constexpr std::uint64_t bits(std::int32_t token) const {
    return mix64(start_ + (static_cast<std::uint64_t>(token) + 1) * kGolden);
  }

 private:
  std::uint64_t start_;
};

// Standard Gumbel noise, -log(-log(u)), from 64 random bits. The bits are read as 1 - u, in (0, 1), so that the large
// values, which decide an argmax, keep full relative precision: down to 1 - u = 2^-53, that is up to 36.7.
inline double gumbel(std::uint64_t bits) {
  const double complement = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  return -std::log(-std::log1p(-complement));
}

inline constexpr double kLargestGumbel = 36.8;

// A cheap upper bound of gumbel(bits), at most 0.7 too high: 1 - u < 2^-z gives -log(-log(u)) < -log(1 - u), and z is
// the number of leading zeros. It saves the two logarithms for nearly every token of a large vocabulary.
constexpr float gumbel_bound(std::uint64_t bits) {
  // -log(1 - u) <= (z + 1) * ln 2 with 1 - u >= 2^-(z + 1); one more ulp against rounding.
  return static_cast<float>(std::countl_zero(bits | 0x3ff) + 1) * 0.69314724f;
}

}  // namespace adze::sample
