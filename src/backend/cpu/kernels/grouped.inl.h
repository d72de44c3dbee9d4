// Codes whose scales stand in tensors of their own (MLX; tensor/grouped.hpp). A group of 16 rows has its scales brought
// into lane order first, for all of its blocks; then 32 codes and their scales are a block like any other, and
// the reduction is that of blocks of 32, whatever the size of the groups.

// Four codes of `Bits` bits from the low bits of each lane, one to each byte.
template <int Bits>
ADZE_INLINE I spread_codes(I x) {
  if constexpr (Bits == 8) {
    return x;
  } else {
    static_assert(Bits != 4, "spread_nibbles takes half the instructions");
    constexpr std::int32_t two = (1 << 2 * Bits) - 1, one = ((1 << Bits) - 1) * 0x00010001;
    const I pairs = or_i(and_i(x, splat_i(two)), shift_left<16 - 2 * Bits>(and_i(x, splat_i(two << 2 * Bits))));
    return or_i(and_i(pairs, splat_i(one)), shift_left<8 - Bits>(and_i(pairs, splat_i(one << Bits))));
  }
}

// q[Dword] on: codes 4 * Dword .. 4 * Dword + 3 of the 32 that lie in `Bits` words.
template <int Bits, int Dword = 0>
ADZE_INLINE void spread_words(const I* words, I q[8]) {
  if constexpr (Dword < 8) {
    constexpr int first = 4 * Bits * Dword, word = first / 32, shift = first % 32;
    I four = words[word];
    if constexpr (shift > 0) four = shift_right<shift>(four);
    if constexpr (shift + 4 * Bits > 32) four = or_i(four, shift_left<32 - shift>(words[word + 1]));
    q[Dword] = spread_codes<Bits>(four);
    spread_words<Bits, Dword + 1>(words, q);
  }
}

// 32 codes of 16 rows as unsigned bytes; reads not a byte beyond them.
template <int Bits>
ADZE_INLINE void load_codes(const std::byte* block, std::size_t stride, I q[8]) {
  I words[8];
#pragma GCC unroll 2
  for (int i = 0; i + 4 <= Bits; i += 4) load_rows16(block + 4 * i, stride, words + i);
#pragma GCC unroll 3
  for (int i = Bits / 4 * 4; i < Bits; ++i) words[i] = load_rows4(block + 4 * i, stride);
  if constexpr (Bits == 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) spread_nibbles(words[i], q[2 * i], q[2 * i + 1]);
  } else {
    spread_words<Bits>(words, q);
  }
}

template <int Bits>
struct MlxAffine {
  static constexpr int kBytes = 4 * Bits, kBits = Bits, kBase = 0;
  // Codes of 8 bits are too large for a byte product: they are taken as signed, 128 less.
  static constexpr bool kSigned = Bits == 8, kHasMin = true, kGrouped = true;
  static constexpr int kOffset = kSigned ? -128 : 0;
  static ADZE_INLINE void codes(const std::byte* block, std::size_t stride, I q[8]) {
    load_codes<Bits>(block, stride, q);
  }
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) { codes(block, stride, p.q); }
  static ADZE_INLINE I value(I code) {
    if constexpr (kSigned) {
      return from_biased(code);
    } else {
      return code;
    }
  }
};

struct MlxMxfp4 {
  static constexpr int kBytes = 16, kBits = 4, kBase = 12, kOffset = kBase, kLargest = 24;  // of kMxfp4Values
  static constexpr bool kSigned = false, kHasMin = false, kGrouped = true;
  static ADZE_INLINE void codes(const std::byte* block, std::size_t stride, I q[8]) { load_codes<4>(block, stride, q); }
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) { codes(block, stride, p.q); }
  static ADZE_INLINE I value(I code) { return lookup16(code, kMxfp4Values); }
};

// --- scales ----------------------------------------------------------------------------------------------------------

// Room for the scales and the biases of 16 rows in groups of 32, the smallest.
constexpr std::size_t one_scale_panel(int k) { return static_cast<std::size_t>(k / 32 + 15) / 16 * sizeof(PanelFloat); }
constexpr std::size_t scale_panels(int k) { return 2 * one_scale_panel(k); }

// Half of 2^(e - 127), the half because E2M1 values are doubled.
inline void unpack_exponents(const std::byte* rows, std::size_t stride, int groups, PanelFloat* panel) {
  for (int g = 0; g < groups; ++g) {
    std::int32_t exponents[16];
    for (std::size_t r = 0; r < 16; ++r) {
      exponents[r] = static_cast<std::int32_t>(byte_at(rows + r * stride, static_cast<std::size_t>(g)));
    }
    panel[g / 16].w[g % 16] = half_of_exponents(load_i(exponents));
  }
}

inline void unpack_scales(tensor::GroupScales::Type type, const std::byte* rows, std::size_t stride, int groups,
                          PanelFloat* panel) {
  using Type = tensor::GroupScales::Type;
  switch (type) {
    case Type::f32: unpack_floats<F32>(rows, stride, groups, panel); break;
    case Type::f16: unpack_floats<F16>(rows, stride, groups, panel); break;
    case Type::bf16: unpack_floats<Bf16>(rows, stride, groups, panel); break;
    case Type::e8m0: unpack_exponents(rows, stride, groups, panel); break;
  }
}

struct ScalePanels {
  const PanelFloat *scales, *biases;
  int shift;  // log2 of the blocks that share a scale
  ADZE_INLINE V scale(int block) const { return at(scales, block); }
  ADZE_INLINE V bias(int block) const { return at(biases, block); }

 private:
  ADZE_INLINE V at(const PanelFloat* panel, int block) const {
    const int group = block >> shift;
    return panel[group / 16].w[group % 16];
  }
};
