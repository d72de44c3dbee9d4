// The vector words of the kernels in plain C++, for any machine; see avx512.inl.h for what each word means. fma is
// exact on every target (in hardware, or by libm), so results equal the vector tables' bit for bit.

struct V {
  float v[16];
};
struct I {
  std::int32_t v[16];
};

constexpr int kMaxTile = 2;

template <class F>
inline V map(F f) {
  V out;
  for (int i = 0; i < 16; ++i) out.v[i] = f(i);
  return out;
}
template <class F>
inline I map_i(F f) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = f(i);
  return out;
}
inline std::int32_t wrap(std::int64_t x) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(x)); }
inline std::uint32_t u32(std::int32_t x) { return static_cast<std::uint32_t>(x); }

// --- floats ---------------------------------------------------------------------------------------------------------
inline V splat(float x) {
  return map([=](int) { return x; });
}
inline V zero() { return splat(0.0f); }
inline V load(const float* p) {
  return map([=](int i) { return p[i]; });
}
inline V load_n(const float* p, int n) {
  return map([=](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store(float* p, V a) {
  for (int i = 0; i < 16; ++i) p[i] = a.v[i];
}
inline void store_n(float* p, V a, int n) {
  for (int i = 0; i < n && i < 16; ++i) p[i] = a.v[i];
}
inline V add(V a, V b) {
  return map([&](int i) { return a.v[i] + b.v[i]; });
}
inline V sub(V a, V b) {
  return map([&](int i) { return a.v[i] - b.v[i]; });
}
inline V mul(V a, V b) {
  return map([&](int i) { return a.v[i] * b.v[i]; });
}
inline V div(V a, V b) {
  return map([&](int i) { return a.v[i] / b.v[i]; });
}
inline V max(V a, V b) {
  return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline V min(V a, V b) {
  return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline V fma(V a, V b, V c) {
  return map([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline V abs(V a) {
  return map([&](int i) { return __builtin_fabsf(a.v[i]); });
}
inline V where_ge(V a, V b, V yes, V no) {
  return map([&](int i) { return a.v[i] >= b.v[i] ? yes.v[i] : no.v[i]; });
}

// --- 32-bit lanes ----------------------------------------------------------------------------------------------------
inline I splat_i(std::int32_t x) {
  return map_i([=](int) { return x; });
}
inline I load_i(const std::int32_t* p) {
  return map_i([=](int i) { return p[i]; });
}
inline void store_i(std::int32_t* p, I a) {
  for (int i = 0; i < 16; ++i) p[i] = a.v[i];
}
inline I add_i(I a, I b) {
  return map_i([&](int i) { return wrap(std::int64_t{a.v[i]} + b.v[i]); });
}
inline I sub_i(I a, I b) {
  return map_i([&](int i) { return wrap(std::int64_t{a.v[i]} - b.v[i]); });
}
inline I mul_i(I a, I b) {
  return map_i([&](int i) { return wrap(std::int64_t{a.v[i]} * b.v[i]); });
}
inline I and_i(I a, I b) {
  return map_i([&](int i) { return a.v[i] & b.v[i]; });
}
inline I or_i(I a, I b) {
  return map_i([&](int i) { return a.v[i] | b.v[i]; });
}
inline I xor_i(I a, I b) {
  return map_i([&](int i) { return a.v[i] ^ b.v[i]; });
}
template <int Bits>
inline I shift_right(I a) {
  return map_i([&](int i) { return static_cast<std::int32_t>(u32(a.v[i]) >> Bits); });
}
template <int Bits>
inline I shift_left(I a) {
  return map_i([&](int i) { return static_cast<std::int32_t>(u32(a.v[i]) << Bits); });
}
inline void spread_nibbles(I a, I& low, I& high) {
  const auto four = [](std::uint32_t x) {
    return static_cast<std::int32_t>((x & 15) | (x & 0xf0) << 4 | (x & 0xf00) << 8 | (x & 0xf000) << 12);
  };
  low = map_i([&](int i) { return four(u32(a.v[i])); });
  high = map_i([&](int i) { return four(u32(a.v[i]) >> 16); });
}
template <int Bits>
inline I shift_right_signed(I a) {
  return map_i([&](int i) { return a.v[i] >> Bits; });
}
inline V to_float(I a) {
  return map([&](int i) { return static_cast<float>(a.v[i]); });
}
inline std::int32_t nearest(float x) {  // what the vector conversion does: INT_MIN for NaN and out of range
  return x >= -0x1p31f && x < 0x1p31f ? static_cast<std::int32_t>(__builtin_rintf(x)) : INT32_MIN;
}
inline I to_int(V a) {
  return map_i([&](int i) { return nearest(a.v[i]); });
}
inline V as_float(I a) {
  V out;
  __builtin_memcpy(out.v, a.v, sizeof out.v);
  return out;
}
inline void store_i8(std::int8_t* p, I a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(a.v[i] & 0xff);
}
inline I load_64(const std::byte* p) {
  I out;
  __builtin_memcpy(out.v, p, 64);
  return out;
}
inline void store_64(std::byte* p, I a) { __builtin_memcpy(p, a.v, 64); }
inline I load_u8(const std::byte* p) {
  return map_i([=](int i) { return static_cast<std::int32_t>(p[i]); });
}
inline I load_pairs(const std::byte* p) {
  return map_i([=](int i) {
    const auto half = [&](int j) { return u32(static_cast<std::int8_t>(p[2 * i + j])) & 0xffffu; };
    return static_cast<std::int32_t>(half(0) | half(1) << 16);
  });
}
inline I load_i8(const std::int8_t* p) {
  return map_i([=](int i) { return std::int32_t{p[i]}; });
}
inline I lookup16(I index, const std::int8_t* table) {
  I out;
  std::uint8_t bytes[64];
  __builtin_memcpy(bytes, index.v, 64);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(table[b & 15]);
  __builtin_memcpy(out.v, bytes, 64);
  return out;
}

// --- 16-bit floats ---------------------------------------------------------------------------------------------------
inline float half_to_float(std::uint32_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  std::uint32_t bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
  if (exponent == 0x1f) bits = sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u);
  float f = 0;
  __builtin_memcpy(&f, &bits, 4);
  if (exponent == 0) {
    f = static_cast<float>(mantissa) * 0x1p-24f;
    if (sign != 0) f = -f;
  }
  return f;
}
inline std::uint16_t float_to_half(float f) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &f, 4);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // a multiple of 2^-24: the addition rounds
    float m = 0;
    __builtin_memcpy(&m, &magnitude, 4);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(__builtin_rintf(m * 0x1p24f)));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}
inline V load_f16(const std::uint16_t* p) {
  return map([=](int i) { return half_to_float(p[i]); });
}
inline V load_bf16(const std::uint16_t* p) {
  return as_float(map_i([=](int i) { return static_cast<std::int32_t>(std::uint32_t{p[i]} << 16); }));
}
inline void store_f16(std::uint16_t* p, V a) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(a.v[i]);
}
inline V f16_low(I a) {
  return map([&](int i) { return half_to_float(u32(a.v[i]) & 0xffffu); });
}
inline V f16_high(I a) { return f16_low(shift_right<16>(a)); }

// --- dot products of bytes -------------------------------------------------------------------------------------------
#include "backend/cpu/simd/wide_dot.inl.h"
inline I dot4_small(I acc, I weights, std::int32_t x) {
  for (int i = 0; i < 16; ++i) {
    for (int b = 0; b < 32; b += 8) {
      acc.v[i] += static_cast<std::int32_t>((u32(weights.v[i]) >> b) & 0xffu) * static_cast<std::int8_t>(u32(x) >> b);
    }
  }
  return acc;
}
constexpr std::int32_t kSignedBias = 0;
inline I dot4_signed(I acc, I weights, std::int32_t x) {
  for (int i = 0; i < 16; ++i) {
    for (int b = 0; b < 32; b += 8) {
      acc.v[i] += static_cast<std::int8_t>(u32(weights.v[i]) >> b) * static_cast<std::int8_t>(u32(x) >> b);
    }
  }
  return acc;
}

inline I dot2(I acc, I pairs, std::int32_t x) {
  const auto half = [](std::int32_t v, int i) { return std::int32_t{static_cast<std::int16_t>(u32(v) >> (16 * i))}; };
  for (int i = 0; i < 16; ++i) acc.v[i] += half(pairs.v[i], 0) * half(x, 0) + half(pairs.v[i], 1) * half(x, 1);
  return acc;
}

// --- 16 rows at once -------------------------------------------------------------------------------------------------
ADZE_INLINE I load_rows4(const std::byte* base, std::size_t stride) {
  I out;
  for (std::size_t r = 0; r < 16; ++r) __builtin_memcpy(&out.v[r], base + r * stride, 4);
  return out;
}
ADZE_INLINE void load_rows16(const std::byte* base, std::size_t stride, I out[4]) {
  for (std::size_t j = 0; j < 4; ++j) out[j] = load_rows4(base + 4 * j, stride);
}
