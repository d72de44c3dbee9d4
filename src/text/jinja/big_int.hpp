// Integers beyond 64 bits, as Python has them: enough to carry ids and counters through a template exactly.
// Bounded: results of more than kMaxLimbs limbs raise OverflowError.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adze::text::jinja {

class BigInt {
 public:
  BigInt() = default;
  BigInt(std::int64_t value);  // NOLINT: every integer is one
  // Digits of `base` (2..36) without sign, separators or spaces. Nothing when a digit does not fit the base.
  static std::optional<BigInt> parse(std::string_view digits, int base);
  // The integer part of a finite double.
  static BigInt truncate(double value);

  std::string to_string(int base = 10) const;
  double to_double() const;  // infinity when out of range
  std::optional<std::int64_t> to_int64() const;
  bool is_negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }
  bool is_odd() const { return !limbs_.empty() && (limbs_[0] & 1) != 0; }

  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  // Quotient rounded towards minus infinity and the remainder with the divisor's sign, as Python's // and %.
  // The divisor must not be zero.
  static void floor_divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder);
  std::strong_ordering operator<=>(const BigInt& other) const;
  bool operator==(const BigInt& other) const = default;

 private:
  static constexpr std::size_t kMaxLimbs = 512;
  static int compare_magnitude(const BigInt& a, const BigInt& b);
  static BigInt add_magnitude(const BigInt& a, const BigInt& b);
  static BigInt subtract_magnitude(const BigInt& a, const BigInt& b);  // |a| >= |b|
  std::uint32_t divide_small(std::uint32_t divisor);                   // in place; the remainder
  void trim();

  bool negative_ = false;
  std::vector<std::uint32_t> limbs_;  // little-endian, no leading zeros; empty is zero
};

}  // namespace adze::text::jinja
