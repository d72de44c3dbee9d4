// The vector words of the kernels for AVX2 with FMA and F16C, and with AVX-VNNI where the isa/ source has it; see
// avx512.inl.h for what each word means. A vector of 16 lanes is two registers.

struct V {
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};

constexpr int kMaxTile = 6;

// --- floats ---------------------------------------------------------------------------------------------------------
inline __m256i lane_mask(int n) {  // lanes < n of 8
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline V splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline V load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, lane_mask(n)), _mm256_maskload_ps(p + 8, lane_mask(n - 8))};
}
inline void store(float* p, V a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_n(float* p, V a, int n) {
  _mm256_maskstore_ps(p, lane_mask(n), a.lo);
  _mm256_maskstore_ps(p + 8, lane_mask(n - 8), a.hi);
}
inline V add(V a, V b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V sub(V a, V b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V mul(V a, V b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V div(V a, V b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline V max(V a, V b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline V min(V a, V b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline V fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
inline V abs(V a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline V where_ge(V a, V b, V yes, V no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ))};
}

// --- 32-bit lanes ----------------------------------------------------------------------------------------------------
inline I splat_i(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I load_i(const std::int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline void store_i(std::int32_t* p, I a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
inline I add_i(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline I sub_i(I a, I b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline I mul_i(I a, I b) { return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)}; }
inline I and_i(I a, I b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline I or_i(I a, I b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
inline I xor_i(I a, I b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
template <int Bits>
inline I shift_right(I a) {
  return {_mm256_srli_epi32(a.lo, Bits), _mm256_srli_epi32(a.hi, Bits)};
}
template <int Bits>
inline I shift_left(I a) {
  return {_mm256_slli_epi32(a.lo, Bits), _mm256_slli_epi32(a.hi, Bits)};
}
ADZE_INLINE void spread_nibbles_half(__m256i a, __m256i& low, __m256i& high) {
  const __m256i even = _mm256_and_si256(a, _mm256_set1_epi32(0x0f0f0f0f));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(a, 4), _mm256_set1_epi32(0x0f0f0f0f));
  const __m256 first = _mm256_castsi256_ps(_mm256_unpacklo_epi8(even, odd));
  const __m256 last = _mm256_castsi256_ps(_mm256_unpackhi_epi8(even, odd));
  low = _mm256_castps_si256(_mm256_shuffle_ps(first, last, 0x88));
  high = _mm256_castps_si256(_mm256_shuffle_ps(first, last, 0xdd));
}
ADZE_INLINE void spread_nibbles(I a, I& low, I& high) {
  spread_nibbles_half(a.lo, low.lo, high.lo);
  spread_nibbles_half(a.hi, low.hi, high.hi);
}
template <int Bits>
inline I shift_right_signed(I a) {
  return {_mm256_srai_epi32(a.lo, Bits), _mm256_srai_epi32(a.hi, Bits)};
}
inline V to_float(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I to_int(V a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline V as_float(I a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline __m128i low_bytes(__m256i a) {  // low byte of each of 8 lanes, in the low 8 bytes
  const __m256i pick = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                        0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i b = _mm256_shuffle_epi8(a, pick);
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
}
inline void store_i8(std::int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi64(low_bytes(a.lo), low_bytes(a.hi)));
}
inline I load_64(const std::byte* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline void store_64(std::byte* p, I a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.hi);
}
inline I load_u8(const std::byte* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline I load_pairs(const std::byte* p) {
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
inline I load_i8(const std::int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline I lookup16(I index, const std::int8_t* table) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, index.lo), _mm256_shuffle_epi8(t, index.hi)};
}

// --- 16-bit floats ---------------------------------------------------------------------------------------------------
inline V load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline V load_bf16(const std::uint16_t* p) {
  return as_float(shift_left<16>(I{_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                                   _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))}));
}
inline void store_f16(std::uint16_t* p, V a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256 f16_low8(__m256i a) {
  const __m256i low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}
inline V f16_low(I a) { return {f16_low8(a.lo), f16_low8(a.hi)}; }
inline V f16_high(I a) { return f16_low(shift_right<16>(a)); }

// --- dot products of bytes -------------------------------------------------------------------------------------------
// The compiler may not reorder sums across this: it turns a run into a tree, whose products all wait in memory
// (products of four-bit weights with six rows: 1.3 times as fast).
ADZE_INLINE __m256i in_order(__m256i sum) {
  asm("" : "+x"(sum));
  return sum;
}
ADZE_INLINE I add_pairs(I acc, I halves, I factors) {
  return {in_order(_mm256_add_epi32(acc.lo, _mm256_madd_epi16(halves.lo, factors.lo))),
          in_order(_mm256_add_epi32(acc.hi, _mm256_madd_epi16(halves.hi, factors.hi)))};
}
#if defined(__AVXVNNI__)
#include "backend/cpu/simd/wide_dot.inl.h"
inline Dot dot4_small(Dot acc, I weights, std::int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {_mm256_dpbusd_avx_epi32(acc.lo, weights.lo, v), _mm256_dpbusd_avx_epi32(acc.hi, weights.hi, v)};
}
constexpr std::int32_t kSignedBias = 128;
inline Dot dot4_signed(Dot acc, I prepared, std::int32_t x) { return dot4_small(acc, prepared, x); }
inline I dot2(I acc, I pairs, std::int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {_mm256_dpwssd_avx_epi32(acc.lo, pairs.lo, v), _mm256_dpwssd_avx_epi32(acc.hi, pairs.hi, v)};
}
#else
#include "backend/cpu/simd/narrow_dot.inl.h"
inline __m256i dot4_half(__m256i acc, __m256i unsigned_weights, __m256i x) {
  return in_order(_mm256_add_epi16(acc, _mm256_maddubs_epi16(unsigned_weights, x)));
}
inline Dot dot4_small(Dot acc, I weights, std::int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {{dot4_half(acc.halves.lo, weights.lo, v), dot4_half(acc.halves.hi, weights.hi, v)}};
}
inline Dot dot4_signed(Dot acc, I w, std::int32_t x) {  // |w| <= 128 as unsigned
  const __m256i v = _mm256_set1_epi32(x);
  return {{dot4_half(acc.halves.lo, _mm256_abs_epi8(w.lo), _mm256_sign_epi8(v, w.lo)),
           dot4_half(acc.halves.hi, _mm256_abs_epi8(w.hi), _mm256_sign_epi8(v, w.hi))}};
}
#endif

// --- 16 rows at once -------------------------------------------------------------------------------------------------
ADZE_INLINE __m256i two_rows16(const std::byte* p, std::size_t stride4) {  // rows 0 and 4 from p
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + stride4));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
ADZE_INLINE void load_rows16_half(const std::byte* base, std::size_t stride, __m256i out[4]) {
  const __m256i a0 = two_rows16(base, 4 * stride), a1 = two_rows16(base + stride, 4 * stride);
  const __m256i a2 = two_rows16(base + 2 * stride, 4 * stride), a3 = two_rows16(base + 3 * stride, 4 * stride);
  const __m256i t0 = _mm256_unpacklo_epi32(a0, a1), t1 = _mm256_unpackhi_epi32(a0, a1);
  const __m256i t2 = _mm256_unpacklo_epi32(a2, a3), t3 = _mm256_unpackhi_epi32(a2, a3);
  out[0] = _mm256_unpacklo_epi64(t0, t2);
  out[1] = _mm256_unpackhi_epi64(t0, t2);
  out[2] = _mm256_unpacklo_epi64(t1, t3);
  out[3] = _mm256_unpackhi_epi64(t1, t3);
}
ADZE_INLINE void load_rows16(const std::byte* base, std::size_t stride, I out[4]) {
  __m256i lo[4], hi[4];
  load_rows16_half(base, stride, lo);
  load_rows16_half(base + 8 * stride, stride, hi);
  for (int j = 0; j < 4; ++j) out[j] = {lo[j], hi[j]};
}
ADZE_INLINE std::int32_t dword(const std::byte* p) {
  std::int32_t x = 0;
  __builtin_memcpy(&x, p, 4);
  return x;
}
ADZE_INLINE I load_rows4(const std::byte* base, std::size_t stride) {
  return {_mm256_setr_epi32(dword(base), dword(base + 1 * stride), dword(base + 2 * stride), dword(base + 3 * stride),
                            dword(base + 4 * stride), dword(base + 5 * stride), dword(base + 6 * stride),
                            dword(base + 7 * stride)),
          _mm256_setr_epi32(dword(base + 8 * stride), dword(base + 9 * stride), dword(base + 10 * stride),
                            dword(base + 11 * stride), dword(base + 12 * stride), dword(base + 13 * stride),
                            dword(base + 14 * stride), dword(base + 15 * stride))};
}
