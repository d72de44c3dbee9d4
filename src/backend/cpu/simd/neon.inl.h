// The vector words of the kernels for AArch64 with the dot product instructions; see avx512.inl.h for what each
// word means. A vector of 16 lanes is four registers.

struct V {
  float32x4_t a, b, c, d;
};
struct I {
  int32x4_t a, b, c, d;
};

// Six tokens' sums are 24 of the 32 registers; a weight's dword and an activation's take five more.
constexpr int kMaxTile = 6;

// f of each register.
template <class F, class... T>
ADZE_INLINE V each(F f, T... x) {
  return {f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
}
template <class F, class... T>
ADZE_INLINE I each_i(F f, T... x) {
  return {f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
}

// --- floats ---------------------------------------------------------------------------------------------------------
inline V splat(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline V zero() { return splat(0.0f); }
inline V load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline void store(float* p, V x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
inline V load_n(const float* p, int n) {
  if (n >= 16) return load(p);
  float lanes[16] = {};
  if (n > 0) __builtin_memcpy(lanes, p, static_cast<std::size_t>(n) * 4);
  return load(lanes);
}
inline void store_n(float* p, V x, int n) {
  if (n >= 16) return store(p, x);
  float lanes[16];
  store(lanes, x);
  if (n > 0) __builtin_memcpy(p, lanes, static_cast<std::size_t>(n) * 4);
}
inline V add(V x, V y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
inline V sub(V x, V y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
inline V mul(V x, V y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
inline V div(V x, V y) { return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d}; }
inline V max(V x, V y) {  // not vmaxq, which gives NaN when either is one
  return each([](float32x4_t p, float32x4_t q) { return vbslq_f32(vcgtq_f32(p, q), p, q); }, x, y);
}
inline V min(V x, V y) {
  return each([](float32x4_t p, float32x4_t q) { return vbslq_f32(vcltq_f32(p, q), p, q); }, x, y);
}
inline V fma(V x, V y, V z) {
  return each([](float32x4_t p, float32x4_t q, float32x4_t r) { return vfmaq_f32(r, p, q); }, x, y, z);
}
inline V abs(V x) {
  return each([](float32x4_t p) { return vabsq_f32(p); }, x);
}
inline V where_ge(V x, V y, V yes, V no) {
  return each(
      [](float32x4_t p, float32x4_t q, float32x4_t t, float32x4_t f) { return vbslq_f32(vcgeq_f32(p, q), t, f); }, x, y,
      yes, no);
}

// --- 32-bit lanes ----------------------------------------------------------------------------------------------------
inline I splat_i(std::int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
inline I load_i(const std::int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}; }
inline void store_i(std::int32_t* p, I x) {
  vst1q_s32(p, x.a);
  vst1q_s32(p + 4, x.b);
  vst1q_s32(p + 8, x.c);
  vst1q_s32(p + 12, x.d);
}
inline I add_i(I x, I y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
inline I sub_i(I x, I y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
inline I mul_i(I x, I y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
inline I and_i(I x, I y) { return {x.a & y.a, x.b & y.b, x.c & y.c, x.d & y.d}; }
inline I or_i(I x, I y) { return {x.a | y.a, x.b | y.b, x.c | y.c, x.d | y.d}; }
inline I xor_i(I x, I y) { return {x.a ^ y.a, x.b ^ y.b, x.c ^ y.c, x.d ^ y.d}; }
template <int Bits>
inline I shift_right(I x) {
  return each_i([](int32x4_t p) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(p), Bits)); }, x);
}
template <int Bits>
inline I shift_left(I x) {
  return each_i([](int32x4_t p) { return vshlq_n_s32(p, Bits); }, x);
}
ADZE_INLINE void spread_nibbles(I x, I& low, I& high) {
  const auto part = [](int32x4_t p, int32x4_t& l, int32x4_t& h) {
    const int8x16_t even = vandq_s8(vreinterpretq_s8_s32(p), vdupq_n_s8(15));
    const int8x16_t odd = vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s32(p), 4));
    const int32x4_t first = vreinterpretq_s32_s8(vzip1q_s8(even, odd));  // two lanes of the four
    const int32x4_t last = vreinterpretq_s32_s8(vzip2q_s8(even, odd));
    l = vuzp1q_s32(first, last);
    h = vuzp2q_s32(first, last);
  };
  part(x.a, low.a, high.a);
  part(x.b, low.b, high.b);
  part(x.c, low.c, high.c);
  part(x.d, low.d, high.d);
}
template <int Bits>
inline I shift_right_signed(I x) {
  return each_i([](int32x4_t p) { return vshrq_n_s32(p, Bits); }, x);
}
inline V to_float(I x) {
  return each([](int32x4_t p) { return vcvtq_f32_s32(p); }, x);
}
inline I to_int(V x) {
  return each_i([](float32x4_t p) { return vcvtnq_s32_f32(p); }, x);
}
inline V as_float(I x) {
  return each([](int32x4_t p) { return vreinterpretq_f32_s32(p); }, x);
}
inline void store_i8(std::int8_t* p, I x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b)),
                  high = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
ADZE_INLINE int32x4_t bytes16(const std::byte* p) {
  return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)));
}
inline I load_64(const std::byte* p) { return {bytes16(p), bytes16(p + 16), bytes16(p + 32), bytes16(p + 48)}; }
inline void store_64(std::byte* p, I x) { store_i(reinterpret_cast<std::int32_t*>(p), x); }
inline I load_u8(const std::byte* p) {
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(p));
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  const auto lanes = [](uint32x4_t v) { return vreinterpretq_s32_u32(v); };
  return {lanes(vmovl_u16(vget_low_u16(low))), lanes(vmovl_high_u16(low)), lanes(vmovl_u16(vget_low_u16(high))),
          lanes(vmovl_high_u16(high))};
}
inline I load_pairs(const std::byte* p) {
  const int8x16_t first = vreinterpretq_s8_s32(bytes16(p)), last = vreinterpretq_s8_s32(bytes16(p + 16));
  const auto lanes = [](int16x8_t v) { return vreinterpretq_s32_s16(v); };
  return {lanes(vmovl_s8(vget_low_s8(first))), lanes(vmovl_high_s8(first)), lanes(vmovl_s8(vget_low_s8(last))),
          lanes(vmovl_high_s8(last))};
}
inline I load_i8(const std::int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}
inline I lookup16(I index, const std::int8_t* table) {
  const int8x16_t t = vld1q_s8(table);
  return each_i([=](int32x4_t p) { return vreinterpretq_s32_s8(vqtbl1q_s8(t, vreinterpretq_u8_s32(p))); }, index);
}

// --- 16-bit floats ---------------------------------------------------------------------------------------------------
inline float32x4_t f16_of(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
inline V load_f16(const std::uint16_t* p) {
  return {f16_of(vld1_u16(p)), f16_of(vld1_u16(p + 4)), f16_of(vld1_u16(p + 8)), f16_of(vld1_u16(p + 12))};
}
inline V load_bf16(const std::uint16_t* p) {
  const auto part = [](uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); };
  return {part(vld1_u16(p)), part(vld1_u16(p + 4)), part(vld1_u16(p + 8)), part(vld1_u16(p + 12))};
}
inline void store_f16(std::uint16_t* p, V x) {
  const auto part = [](std::uint16_t* to, float32x4_t v) { vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(v))); };
  part(p, x.a);
  part(p + 4, x.b);
  part(p + 8, x.c);
  part(p + 12, x.d);
}
inline V f16_low(I x) {
  return each([](int32x4_t p) { return f16_of(vmovn_u32(vreinterpretq_u32_s32(p))); }, x);
}
inline V f16_high(I x) {
  return each([](int32x4_t p) { return f16_of(vshrn_n_u32(vreinterpretq_u32_s32(p), 16)); }, x);
}

// --- dot products of bytes: both sides signed, so weights of 0..127 need nothing of their own ------------------------
#include "backend/cpu/simd/wide_dot.inl.h"
ADZE_INLINE I dot4_signed(I acc, I weights, std::int32_t x) {
  const int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32(x));
  return each_i([=](int32x4_t s, int32x4_t w) { return vdotq_s32(s, vreinterpretq_s8_s32(w), v); }, acc, weights);
}
ADZE_INLINE I dot4_small(I acc, I weights, std::int32_t x) { return dot4_signed(acc, weights, x); }
constexpr std::int32_t kSignedBias = 0;
inline I dot2(I acc, I pairs, std::int32_t x) {
  const int16x8_t v = vreinterpretq_s16_s32(vdupq_n_s32(x));
  return each_i(
      [=](int32x4_t s, int32x4_t w) {
        const int16x8_t halves = vreinterpretq_s16_s32(w);
        return s + vpaddq_s32(vmull_s16(vget_low_s16(halves), vget_low_s16(v)), vmull_high_s16(halves, v));
      },
      acc, pairs);
}

// --- 16 rows at once -------------------------------------------------------------------------------------------------
ADZE_INLINE void transpose_rows4(const std::byte* base, std::size_t stride, int32x4_t out[4]) {
  const int32x4_t r0 = bytes16(base), r1 = bytes16(base + stride);
  const int32x4_t r2 = bytes16(base + 2 * stride), r3 = bytes16(base + 3 * stride);
  const auto pair = [](int32x4_t x) { return vreinterpretq_s64_s32(x); };
  const auto lanes = [](int64x2_t x) { return vreinterpretq_s32_s64(x); };
  const int64x2_t even01 = pair(vtrn1q_s32(r0, r1)), odd01 = pair(vtrn2q_s32(r0, r1));
  const int64x2_t even23 = pair(vtrn1q_s32(r2, r3)), odd23 = pair(vtrn2q_s32(r2, r3));
  out[0] = lanes(vtrn1q_s64(even01, even23));
  out[1] = lanes(vtrn1q_s64(odd01, odd23));
  out[2] = lanes(vtrn2q_s64(even01, even23));
  out[3] = lanes(vtrn2q_s64(odd01, odd23));
}
ADZE_INLINE void load_rows16(const std::byte* base, std::size_t stride, I out[4]) {
  int32x4_t a[4], b[4], c[4], d[4];
  transpose_rows4(base, stride, a);
  transpose_rows4(base + 4 * stride, stride, b);
  transpose_rows4(base + 8 * stride, stride, c);
  transpose_rows4(base + 12 * stride, stride, d);
  for (int j = 0; j < 4; ++j) out[j] = {a[j], b[j], c[j], d[j]};
}
ADZE_INLINE std::int32_t dword(const std::byte* p) {
  std::int32_t x = 0;
  __builtin_memcpy(&x, p, 4);
  return x;
}
ADZE_INLINE int32x4_t dwords4(const std::byte* p, std::size_t stride) {
  return int32x4_t{dword(p), dword(p + stride), dword(p + 2 * stride), dword(p + 3 * stride)};
}
ADZE_INLINE I load_rows4(const std::byte* base, std::size_t stride) {
  return {dwords4(base, stride), dwords4(base + 4 * stride, stride), dwords4(base + 8 * stride, stride),
          dwords4(base + 12 * stride, stride)};
}
