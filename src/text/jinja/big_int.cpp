#include "text/jinja/big_int.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/error.hpp"

namespace adze::text::jinja {

BigInt::BigInt(std::int64_t value) : negative_(value < 0) {
  auto magnitude = negative_ ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  for (; magnitude != 0; magnitude >>= 32) limbs_.push_back(static_cast<std::uint32_t>(magnitude));
}

void BigInt::trim() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
  if (limbs_.size() > kMaxLimbs) raise("OverflowError", "integer is too large");
}

std::optional<BigInt> BigInt::parse(std::string_view digits, int base) {
  if (digits.empty()) return std::nullopt;
  BigInt value;
  for (const char c : digits) {
    int digit = 99;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') digit = c - 'A' + 10;
    if (digit >= base) return std::nullopt;
    std::uint64_t carry = static_cast<std::uint64_t>(digit);
    for (auto& limb : value.limbs_) {
      carry += static_cast<std::uint64_t>(limb) * static_cast<std::uint64_t>(base);
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) value.limbs_.push_back(static_cast<std::uint32_t>(carry));
    value.trim();
  }
  return value;
}

BigInt BigInt::truncate(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // |value| = fraction * 2^exponent
  BigInt out;
  if (exponent <= 0) return out;
  std::uint64_t mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  int shift = exponent - 53;
  if (shift < 0) {
    mantissa >>= -shift;
    shift = 0;
  }
  out.limbs_.assign(static_cast<std::size_t>(shift / 32), 0);
  const int bits = shift % 32;
  out.limbs_.push_back(static_cast<std::uint32_t>(mantissa << bits));
  out.limbs_.push_back(static_cast<std::uint32_t>((mantissa << bits) >> 32));
  out.limbs_.push_back(bits == 0 ? 0u : static_cast<std::uint32_t>(mantissa >> (64 - bits)));
  out.negative_ = value < 0;
  out.trim();
  return out;
}

std::uint32_t BigInt::divide_small(std::uint32_t divisor) {
  std::uint64_t remainder = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;) {
    remainder = (remainder << 32) | limbs_[i];
    limbs_[i] = static_cast<std::uint32_t>(remainder / divisor);
    remainder %= divisor;
  }
  trim();
  return static_cast<std::uint32_t>(remainder);
}

std::string BigInt::to_string(int base) const {
  if (is_zero()) return "0";
  BigInt rest = *this;
  rest.negative_ = false;
  std::string out;
  while (!rest.is_zero())
    out.push_back("0123456789abcdefghijklmnopqrstuvwxyz"[rest.divide_small(static_cast<std::uint32_t>(base))]);
  if (negative_) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

double BigInt::to_double() const {
  // Through decimal text, because strtod rounds correctly.
  return std::strtod(to_string().c_str(), nullptr);
}

std::optional<std::int64_t> BigInt::to_int64() const {
  if (limbs_.size() > 2) return std::nullopt;
  std::uint64_t magnitude = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;) magnitude = (magnitude << 32) | limbs_[i];
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (magnitude > kMax + (negative_ ? 1 : 0)) return std::nullopt;
  return static_cast<std::int64_t>(negative_ ? ~magnitude + 1 : magnitude);
}

int BigInt::compare_magnitude(const BigInt& a, const BigInt& b) {
  if (a.limbs_.size() != b.limbs_.size()) return a.limbs_.size() < b.limbs_.size() ? -1 : 1;
  for (std::size_t i = a.limbs_.size(); i-- > 0;)
    if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
  return 0;
}

BigInt BigInt::add_magnitude(const BigInt& a, const BigInt& b) {
  BigInt out;
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry != 0; ++i) {
    if (i < a.limbs_.size()) carry += a.limbs_[i];
    if (i < b.limbs_.size()) carry += b.limbs_[i];
    out.limbs_.push_back(static_cast<std::uint32_t>(carry));
    carry >>= 32;
  }
  return out;
}

BigInt BigInt::subtract_magnitude(const BigInt& a, const BigInt& b) {
  BigInt out;
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::int64_t digit = static_cast<std::int64_t>(a.limbs_[i]) - borrow;
    if (i < b.limbs_.size()) digit -= b.limbs_[i];
    borrow = digit < 0 ? 1 : 0;
    out.limbs_.push_back(static_cast<std::uint32_t>(digit + (borrow << 32)));
  }
  out.trim();
  return out;
}

BigInt BigInt::operator-() const {
  BigInt out = *this;
  if (!out.is_zero()) out.negative_ = !out.negative_;
  return out;
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  BigInt out;
  if (a.negative_ == b.negative_) {
    out = BigInt::add_magnitude(a, b);
    out.negative_ = a.negative_;
  } else if (BigInt::compare_magnitude(a, b) >= 0) {
    out = BigInt::subtract_magnitude(a, b);
    out.negative_ = a.negative_;
  } else {
    out = BigInt::subtract_magnitude(b, a);
    out.negative_ = b.negative_;
  }
  out.trim();
  return out;
}

BigInt operator-(const BigInt& a, const BigInt& b) { return a + -b; }

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt out;
  out.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t k = 0; k < b.limbs_.size() || carry != 0; ++k) {
      carry += out.limbs_[i + k];
      if (k < b.limbs_.size()) carry += static_cast<std::uint64_t>(a.limbs_[i]) * b.limbs_[k];
      out.limbs_[i + k] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  out.negative_ = a.negative_ != b.negative_;
  out.trim();
  return out;
}

void BigInt::floor_divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder) {
  BigInt divisor = b;
  divisor.negative_ = false;
  BigInt q;
  BigInt r;
  q.limbs_.assign(a.limbs_.size(), 0);
  // Long division bit by bit: at most 16 thousand rounds over 512 limbs.
  for (std::size_t bit = a.limbs_.size() * 32; bit-- > 0;) {
    r = BigInt::add_magnitude(r, r);
    if ((a.limbs_[bit / 32] >> (bit % 32)) & 1) r = BigInt::add_magnitude(r, BigInt(1));
    if (compare_magnitude(r, divisor) >= 0) {
      r = subtract_magnitude(r, divisor);
      q.limbs_[bit / 32] |= 1u << (bit % 32);
    }
  }
  q.trim();
  r.trim();
  q.negative_ = a.negative_ != b.negative_ && !q.is_zero();
  r.negative_ = a.negative_ && !r.is_zero();
  if (!r.is_zero() && r.negative_ != b.negative_) {
    q = q - BigInt(1);
    r = r + b;
  }
  quotient = std::move(q);
  remainder = std::move(r);
}

std::strong_ordering BigInt::operator<=>(const BigInt& other) const {
  if (negative_ != other.negative_) return negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  const int order = negative_ ? compare_magnitude(other, *this) : compare_magnitude(*this, other);
  return order <=> 0;
}

}  // namespace adze::text::jinja
