// The vector words of the kernels for AVX-512, with VNNI where the isa/ source has it: V is 16 floats, I is 16 int32
// lanes or 64 bytes. Every simd/ header defines the same words with the same results, bit for bit; kernels are written
// once over them.
// Included inside an anonymous namespace of one isa/ source: nothing here may emit a symbol.

struct V {
  __m512 v;
};
struct I {
  __m512i v;
};

constexpr int kMaxTile = 12;  // tokens whose accumulators stay in registers beside a unit of weights

// --- floats ---------------------------------------------------------------------------------------------------------
inline V splat(float x) { return {_mm512_set1_ps(x)}; }
inline V zero() { return {_mm512_setzero_ps()}; }
inline V load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline V load_n(const float* p, int n) {  // lanes >= n are 0 and are not read
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p)};
}
inline void store(float* p, V a) { _mm512_storeu_ps(p, a.v); }
inline void store_n(float* p, V a, int n) { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), a.v); }
inline V add(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V sub(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V mul(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V div(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V max(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }  // a > b ? a : b, so b when either is NaN
inline V min(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V abs(V a) { return {_mm512_abs_ps(a.v)}; }
inline V where_ge(V a, V b, V yes, V no) {  // a >= b ? yes : no
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ), no.v, yes.v)};
}

// --- 32-bit lanes ----------------------------------------------------------------------------------------------------
inline I splat_i(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I load_i(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store_i(std::int32_t* p, I a) { _mm512_storeu_si512(p, a.v); }
inline I add_i(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I sub_i(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I mul_i(I a, I b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline I and_i(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I or_i(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
inline I xor_i(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int Bits>
inline I shift_right(I a) {  // logical
  return {_mm512_srli_epi32(a.v, Bits)};
}
template <int Bits>
inline I shift_left(I a) {
  return {_mm512_slli_epi32(a.v, Bits)};
}
// The eight nibbles of each lane, lowest first, one to a byte: four in each result.
ADZE_INLINE void spread_nibbles(I a, I& low, I& high) {
  const __m512i even = _mm512_and_si512(a.v, _mm512_set1_epi32(0x0f0f0f0f));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(a.v, 4), _mm512_set1_epi32(0x0f0f0f0f));
  const __m512 first = _mm512_castsi512_ps(_mm512_unpacklo_epi8(even, odd));  // two lanes of each four
  const __m512 last = _mm512_castsi512_ps(_mm512_unpackhi_epi8(even, odd));
  low.v = _mm512_castps_si512(_mm512_shuffle_ps(first, last, 0x88));
  high.v = _mm512_castps_si512(_mm512_shuffle_ps(first, last, 0xdd));
}
template <int Bits>
inline I shift_right_signed(I a) {
  return {_mm512_srai_epi32(a.v, Bits)};
}
inline V to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I to_int(V a) { return {_mm512_cvtps_epi32(a.v)}; }  // nearest even; |a| < 2^31
inline V as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
inline void store_i8(std::int8_t* p, I a) {  // low byte of each lane
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
inline I load_64(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
inline void store_64(std::byte* p, I a) { _mm512_storeu_si512(p, a.v); }
inline I load_u8(const std::byte* p) {  // 16 unsigned bytes, widened
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline I load_pairs(const std::byte* p) {  // 32 signed bytes, widened to 16 bits
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline I load_i8(const std::int8_t* p) {  // 16 signed bytes, widened
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
// Each byte of `index` (0..15) replaced by table[index].
inline I lookup16(I index, const std::int8_t* table) {
  const __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(t, index.v)};
}

// --- 16-bit floats ---------------------------------------------------------------------------------------------------
inline V load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline V load_bf16(const std::uint16_t* p) {
  return as_float(shift_left<16>(I{_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}));
}
inline void store_f16(std::uint16_t* p, V a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline V f16_low(I a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }  // low half of each lane
inline V f16_high(I a) { return f16_low(shift_right<16>(a)); }

// --- dot products of bytes -------------------------------------------------------------------------------------------
// Lane r += sum over its 4 bytes of weight * x; x is one dword for all lanes, none of its bytes is -128. What products
// are added to is a Dot: lanes of 32 bits where the instruction set has that (wide_dot.inl.h), else of 16 bits, two to
// a lane, which hold the products of kDotRun dwords and are then closed into lanes of 32:
//   open_dot(sum)               for products that shall be added to sum
//   close_dot(sum, dot)         sum + the products
//   close_scaled(sum, dot, s)   sum + scale * the products, of a Dot opened with 0; s = dot_scales(scale of 16 bits)
#if defined(__AVX512VNNI__)
#include "backend/cpu/simd/wide_dot.inl.h"
inline Dot dot4_small(Dot acc, I weights, std::int32_t x) {  // weights 0..Largest, here up to 255
  return {_mm512_dpbusd_epi32(acc.v, weights.v, _mm512_set1_epi32(x))};
}
// Signed weights are kept with kSignedBias added, because dpbusd takes unsigned ones; the caller starts its accumulator
// at -kSignedBias * sum(x).
constexpr std::int32_t kSignedBias = 128;
inline Dot dot4_signed(Dot acc, I prepared, std::int32_t x) { return dot4_small(acc, prepared, x); }

// Lane r += the products of its two 16-bit halves with those of x.
inline I dot2(I acc, I pairs, std::int32_t x) { return {_mm512_dpwssd_epi32(acc.v, pairs.v, _mm512_set1_epi32(x))}; }
#else
// The compiler may not reorder sums across this: it turns a run into a tree, whose products all wait in memory.
ADZE_INLINE __m512i in_order(__m512i sum) {
  asm("" : "+v"(sum));
  return sum;
}
ADZE_INLINE I add_pairs(I acc, I halves, I factors) {
  return {in_order(_mm512_add_epi32(acc.v, _mm512_madd_epi16(halves.v, factors.v)))};
}
#include "backend/cpu/simd/narrow_dot.inl.h"
inline Dot dot4_small(Dot acc, I weights, std::int32_t x) {
  return {{in_order(_mm512_add_epi16(acc.halves.v, _mm512_maddubs_epi16(weights.v, _mm512_set1_epi32(x))))}};
}
inline Dot dot4_signed(Dot acc, I w, std::int32_t x) {  // |w| <= 128 as unsigned
  const __m512i v = _mm512_set1_epi32(x);
  const __m512i moved = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask(w.v), _mm512_setzero_si512(), v);
  return {{in_order(_mm512_add_epi16(acc.halves.v, _mm512_maddubs_epi16(_mm512_abs_epi8(w.v), moved)))}};
}
#endif

// --- 16 rows at once -------------------------------------------------------------------------------------------------
ADZE_INLINE __m128i row16(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
ADZE_INLINE __m512i four_rows16(const std::byte* p, std::size_t stride4) {  // rows 0, 4, 8 and 12 from p
  __m512i a = _mm512_castsi128_si512(row16(p));
  a = _mm512_inserti32x4(a, row16(p + stride4), 1);
  a = _mm512_inserti32x4(a, row16(p + 2 * stride4), 2);
  return _mm512_inserti32x4(a, row16(p + 3 * stride4), 3);
}
// out[j] lane r = dword j of the 16 bytes at base + r * stride.
ADZE_INLINE void load_rows16(const std::byte* base, std::size_t stride, I out[4]) {
  const __m512i a0 = four_rows16(base, 4 * stride), a1 = four_rows16(base + stride, 4 * stride);
  const __m512i a2 = four_rows16(base + 2 * stride, 4 * stride), a3 = four_rows16(base + 3 * stride, 4 * stride);
  const __m512i t0 = _mm512_unpacklo_epi32(a0, a1), t1 = _mm512_unpackhi_epi32(a0, a1);
  const __m512i t2 = _mm512_unpacklo_epi32(a2, a3), t3 = _mm512_unpackhi_epi32(a2, a3);
  out[0].v = _mm512_unpacklo_epi64(t0, t2);
  out[1].v = _mm512_unpackhi_epi64(t0, t2);
  out[2].v = _mm512_unpacklo_epi64(t1, t3);
  out[3].v = _mm512_unpackhi_epi64(t1, t3);
}
// lane r = the dword at base + r * stride; 16 * stride < 2^31.
ADZE_INLINE I load_rows4(const std::byte* base, std::size_t stride) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_i32gather_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(stride))), base, 1)};
}
