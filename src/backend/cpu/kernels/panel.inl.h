// 16 rows of a weight matrix brought into lane order from the blocks of the model's file. Dword i of a block holds 4
// consecutive inputs of one row per lane, so that a byte dot product accumulates one output row per lane and nothing is
// ever summed across lanes. One struct per block format says how to read its blocks; packing (packed.inl.h) and
// products with weights that are not packed (matmul.inl.h) begin here.

// 32 inputs: value = d * (q - offset) [+ m].
struct Panel32 {
  I q[8];
  V d, m;
};

// 256 inputs in Sub sub-blocks: value = d * scale_j * (q - offset) [- dmin * min_j].
template <int Sub>
struct Panel256 {
  I q[64];
  I scale[Sub], min[Sub];
  V d, dmin;
};

// 16 inputs in float32.
struct PanelFloat {
  V w[16];
};

// Added to each byte, or taken away.
constexpr std::int32_t kSignBits = static_cast<std::int32_t>(0x80808080u);
// Codes with 128 added, as dot4_signed takes them.
ADZE_INLINE I from_biased(I codes) {
  if constexpr (kSignedBias == 128) {
    return codes;
  } else {
    return xor_i(codes, splat_i(kSignBits));
  }
}

ADZE_INLINE I low_nibbles(I x) { return and_i(x, splat_i(0x0f0f0f0f)); }
ADZE_INLINE I high_nibbles(I x) { return and_i(shift_right<4>(x), splat_i(0x0f0f0f0f)); }

// q[0..3] = low nibbles (inputs 0..15), q[4..7] = high nibbles (16..31) of 16 bytes a row.
ADZE_INLINE void unpack_nibbles(const std::byte* bytes, std::size_t stride, I q[8]) {
  I raw[4];
  load_rows16(bytes, stride, raw);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    q[i] = low_nibbles(raw[i]);
    q[i + 4] = high_nibbles(raw[i]);
  }
}
// Adds bit 4 of each of the 32 inputs, given as one dword a row: bit k of four goes to byte k.
ADZE_INLINE void add_fifth_bits(I bits, I q[8]) {
  const auto four = [](I nibble) {
    return shift_left<4>(and_i(mul_i(and_i(nibble, splat_i(15)), splat_i(0x00204081)), splat_i(0x01010101)));
  };
  q[0] = or_i(q[0], four(bits));
  q[1] = or_i(q[1], four(shift_right<4>(bits)));
  q[2] = or_i(q[2], four(shift_right<8>(bits)));
  q[3] = or_i(q[3], four(shift_right<12>(bits)));
  q[4] = or_i(q[4], four(shift_right<16>(bits)));
  q[5] = or_i(q[5], four(shift_right<20>(bits)));
  q[6] = or_i(q[6], four(shift_right<24>(bits)));
  q[7] = or_i(q[7], four(shift_right<28>(bits)));
}

// --- blocks of 32: codes of kBits bits, which value() makes bytes to multiply with. [kSigned] Those are signed (codes
// of 8 bits with 128 added), else 0..127 with kOffset to subtract; [kHasMin] m is added.

struct Q4_0 {
  static constexpr int kBytes = 18, kBits = 4, kOffset = 8;
  static constexpr bool kSigned = false, kHasMin = false;
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    unpack_nibbles(block + 2, stride, p.q);
  }
  static ADZE_INLINE I value(I code) { return code; }
};
struct Q4_1 {
  static constexpr int kBytes = 20, kBits = 4, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) {
    const I dm = load_rows4(block, stride);
    p.d = f16_low(dm);
    p.m = f16_high(dm);
    unpack_nibbles(block + 4, stride, p.q);
  }
  static ADZE_INLINE I value(I code) { return code; }
};
struct Q5_0 {
  static constexpr int kBytes = 22, kBits = 5, kOffset = 16;
  static constexpr bool kSigned = false, kHasMin = false;
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    unpack_nibbles(block + 6, stride, p.q);
    add_fifth_bits(load_rows4(block + 2, stride), p.q);
  }
  static ADZE_INLINE I value(I code) { return code; }
};
struct Q5_1 {
  static constexpr int kBytes = 24, kBits = 5, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) {
    const I dm = load_rows4(block, stride);
    p.d = f16_low(dm);
    p.m = f16_high(dm);
    unpack_nibbles(block + 8, stride, p.q);
    add_fifth_bits(load_rows4(block + 4, stride), p.q);
  }
  static ADZE_INLINE I value(I code) { return code; }
};
struct Q8_0 {
  static constexpr int kBytes = 34, kBits = 8, kOffset = 0;
  static constexpr bool kSigned = true, kHasMin = false;
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    load_rows16(block + 2, stride, p.q);
    load_rows16(block + 18, stride, p.q + 4);
#pragma GCC unroll 8
    for (I& q : p.q) q = xor_i(q, splat_i(kSignBits));
  }
  static ADZE_INLINE I value(I code) { return from_biased(code); }
};

// As this instruction set multiplies them: with kSignedBias added, in bytes.
struct Iq4Values {
  std::int8_t prepared[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  constexpr Iq4Values() {
    for (std::int8_t& v : prepared) v = static_cast<std::int8_t>(kSignedBias == 0 ? v : v < 0 ? v + 128 : v - 128);
  }
};
alignas(16) constexpr Iq4Values kIq4;
constexpr const std::int8_t* kIq4Prepared = kIq4.prepared;
// E2M1 values doubled, plus 12 so that they are not negative.
alignas(16) constexpr std::int8_t kMxfp4Values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// 2^(e - 127) / 2 of each lane's e in 0..255, the half because the values are doubled: the product of two powers that
// are both normal numbers.
ADZE_INLINE V half_of_exponents(I e) {
  const I half = shift_right<1>(e);
  return mul(as_float(shift_left<23>(add_i(half, splat_i(63)))),
             as_float(shift_left<23>(add_i(sub_i(e, half), splat_i(63)))));
}

struct Iq4Nl {
  static constexpr int kBytes = 18, kBits = 4, kOffset = 0;
  static constexpr bool kSigned = true, kHasMin = false;
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    unpack_nibbles(block + 2, stride, p.q);
  }
  static ADZE_INLINE I value(I code) { return lookup16(code, kIq4Prepared); }
};
struct Mxfp4 {
  static constexpr bool kExponents = true;
  static constexpr int kBytes = 17, kBits = 4, kOffset = 12, kLargest = 24;
  static constexpr bool kSigned = false, kHasMin = false;
  static ADZE_INLINE void read(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = half_of_exponents(and_i(load_rows4(block, stride), splat_i(0xff)));
    unpack_nibbles(block + 1, stride, p.q);
  }
  static ADZE_INLINE I value(I code) { return lookup16(code, kMxfp4Values); }
};

// --- blocks of 256
// ----------------------------------------------------------------------------------------------------

// Scales that do not fit a vector form are decoded row by row: 16 rows of a few bytes beside 4096 weights.
inline unsigned byte_at(const std::byte* p, std::size_t i) { return static_cast<unsigned>(p[i]); }

// The 6-bit scales and mins of Q4_K and Q5_K: 8 of each in 12 bytes.
inline void unpack_k4_scales(const std::byte* scales, std::size_t stride, I* scale, I* min) {
  std::int32_t s[8][16], m[8][16];
  for (std::size_t r = 0; r < 16; ++r) {
    const std::byte* p = scales + r * stride;
    for (std::size_t j = 0; j < 4; ++j) {
      s[j][r] = static_cast<std::int32_t>(byte_at(p, j) & 63u);
      m[j][r] = static_cast<std::int32_t>(byte_at(p, j + 4) & 63u);
      s[j + 4][r] = static_cast<std::int32_t>((byte_at(p, j + 8) & 15u) | ((byte_at(p, j) >> 6) << 4));
      m[j + 4][r] = static_cast<std::int32_t>((byte_at(p, j + 8) >> 4) | ((byte_at(p, j + 4) >> 6) << 4));
    }
  }
  for (int j = 0; j < 8; ++j) {
    scale[j] = load_i(s[j]);
    min[j] = load_i(m[j]);
  }
}

struct Q2K {
  static constexpr bool kNibbleScales = true;
  static constexpr int kBytes = 84, kBits = 2, kOffset = 0, kSub = 16;
  static constexpr bool kSigned = false, kHasMin = true;
  static void read(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
    I raw[4];
    load_rows16(block, stride, raw);  // 16 bytes: low nibble scale, high nibble min
    for (int i = 0; i < 4; ++i) {
      I bytes = raw[i];
      for (int j = 0; j < 4; ++j, bytes = shift_right<8>(bytes)) {
        p.scale[4 * i + j] = and_i(bytes, splat_i(15));
        p.min[4 * i + j] = and_i(shift_right<4>(bytes), splat_i(15));
      }
    }
    const I dm = load_rows4(block + 80, stride);
    p.d = f16_low(dm);
    p.dmin = f16_high(dm);
    for (int half = 0; half < 2; ++half) {
      I qs[8];
      load_rows16(block + 16 + 32 * half, stride, qs);
      load_rows16(block + 32 + 32 * half, stride, qs + 4);
      const I mask = splat_i(0x03030303);
      for (int i = 0; i < 8; ++i) {
        I* q = p.q + 32 * half + i;
        q[0] = and_i(qs[i], mask);
        q[8] = and_i(shift_right<2>(qs[i]), mask);
        q[16] = and_i(shift_right<4>(qs[i]), mask);
        q[24] = and_i(shift_right<6>(qs[i]), mask);
      }
    }
  }
  static ADZE_INLINE I value(I code) { return code; }
};

struct Q3K {
  static constexpr int kBytes = 110, kBits = 3, kOffset = 4, kSub = 16;
  static constexpr bool kSigned = false, kHasMin = false;
  static void read(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
    std::int32_t s[16][16];
    for (std::size_t r = 0; r < 16; ++r) {  // 16 scales of 6 bits in 12 bytes, minus 32
      const std::byte* b = block + 96 + r * stride;
      for (std::size_t j = 0; j < 16; ++j) {
        const unsigned low = j < 8 ? byte_at(b, j) & 15u : byte_at(b, j - 8) >> 4;
        const unsigned high = (byte_at(b, 8 + j % 4) >> (2 * (j / 4))) & 3u;
        s[j][r] = static_cast<std::int32_t>(low | (high << 4)) - 32;
      }
    }
    for (int j = 0; j < 16; ++j) p.scale[j] = load_i(s[j]);
    p.d = f16_high(load_rows4(block + 106, stride));
    I high[8];
    load_rows16(block, stride, high);
    load_rows16(block + 16, stride, high + 4);
    for (int half = 0; half < 2; ++half) {
      I qs[8];
      load_rows16(block + 32 + 32 * half, stride, qs);
      load_rows16(block + 48 + 32 * half, stride, qs + 4);
      const I mask = splat_i(0x03030303), bit = splat_i(0x01010101);
      for (int i = 0; i < 8; ++i) {
        I* q = p.q + 32 * half + i;
        const I h = half == 0 ? high[i] : shift_right<4>(high[i]);
        q[0] = or_i(and_i(qs[i], mask), shift_left<2>(and_i(h, bit)));
        q[8] = or_i(and_i(shift_right<2>(qs[i]), mask), shift_left<2>(and_i(shift_right<1>(h), bit)));
        q[16] = or_i(and_i(shift_right<4>(qs[i]), mask), shift_left<2>(and_i(shift_right<2>(h), bit)));
        q[24] = or_i(and_i(shift_right<6>(qs[i]), mask), shift_left<2>(and_i(shift_right<3>(h), bit)));
      }
    }
  }
  static ADZE_INLINE I value(I code) { return code; }
};

struct Q4K {
  static constexpr int kBytes = 144, kBits = 4, kOffset = 0, kSub = 8;
  static constexpr bool kSigned = false, kHasMin = true;
  static void read(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
    const I dm = load_rows4(block, stride);
    p.d = f16_low(dm);
    p.dmin = f16_high(dm);
    unpack_k4_scales(block + 4, stride, p.scale, p.min);
    for (int c = 0; c < 4; ++c) {  // 64 inputs in 32 bytes
      I qs[8];
      load_rows16(block + 16 + 32 * c, stride, qs);
      load_rows16(block + 32 + 32 * c, stride, qs + 4);
      for (int i = 0; i < 8; ++i) {
        p.q[16 * c + i] = low_nibbles(qs[i]);
        p.q[16 * c + 8 + i] = high_nibbles(qs[i]);
      }
    }
  }
  static ADZE_INLINE I value(I code) { return code; }
};

struct Q5K {
  static constexpr int kBytes = 176, kBits = 5, kOffset = 0, kSub = 8;
  static constexpr bool kSigned = false, kHasMin = true;
  static void read(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
    const I dm = load_rows4(block, stride);
    p.d = f16_low(dm);
    p.dmin = f16_high(dm);
    unpack_k4_scales(block + 4, stride, p.scale, p.min);
    I high[8];
    load_rows16(block + 16, stride, high);
    load_rows16(block + 32, stride, high + 4);
    const I bit = splat_i(0x01010101);
    for (int c = 0; c < 4; ++c) {
      I qs[8];
      load_rows16(block + 48 + 32 * c, stride, qs);
      load_rows16(block + 64 + 32 * c, stride, qs + 4);
      for (int i = 0; i < 8; ++i) {
        p.q[16 * c + i] = or_i(low_nibbles(qs[i]), shift_left<4>(and_i(high[i], bit)));
        p.q[16 * c + 8 + i] = or_i(high_nibbles(qs[i]), shift_left<4>(and_i(shift_right<1>(high[i]), bit)));
        high[i] = shift_right<2>(high[i]);
      }
    }
  }
  static ADZE_INLINE I value(I code) { return code; }
};

struct Q6K {
  static constexpr int kBytes = 210, kBits = 6, kOffset = 32, kSub = 16;
  static constexpr bool kSigned = false, kHasMin = false;
  static void read(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
    I raw[4];
    load_rows16(block + 192, stride, raw);  // 16 signed bytes
    for (int i = 0; i < 4; ++i) {
      std::int32_t bytes[16], s[4][16];
      store_i(bytes, raw[i]);
      for (int r = 0; r < 16; ++r) {
        for (int j = 0; j < 4; ++j) s[j][r] = static_cast<std::int8_t>(static_cast<std::uint32_t>(bytes[r]) >> (8 * j));
      }
      for (int j = 0; j < 4; ++j) p.scale[4 * i + j] = load_i(s[j]);
    }
    p.d = f16_high(load_rows4(block + 206, stride));
    for (int half = 0; half < 2; ++half) {
      I low[16], high[8];
      for (int c = 0; c < 4; ++c) load_rows16(block + 64 * half + 16 * c, stride, low + 4 * c);
      load_rows16(block + 128 + 32 * half, stride, high);
      load_rows16(block + 144 + 32 * half, stride, high + 4);
      const I two = splat_i(0x30303030);
      for (int i = 0; i < 8; ++i) {
        I* q = p.q + 32 * half + i;
        q[0] = or_i(low_nibbles(low[i]), and_i(shift_left<4>(high[i]), two));
        q[8] = or_i(low_nibbles(low[i + 8]), and_i(shift_left<2>(high[i]), two));
        q[16] = or_i(high_nibbles(low[i]), and_i(high[i], two));
        q[24] = or_i(high_nibbles(low[i + 8]), and_i(shift_right<2>(high[i]), two));
      }
    }
  }
  static ADZE_INLINE I value(I code) { return code; }
};

struct Iq4Xs {
  static constexpr int kBytes = 136, kBits = 4, kOffset = 0, kSub = 8;
  static constexpr bool kSigned = true, kHasMin = false;
  static void read(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
    const I dh = load_rows4(block, stride);  // d, then 2 high bits of each scale
    p.d = f16_low(dh);
    I high = shift_right<16>(dh), low = load_rows4(block + 4, stride);
    for (int j = 0; j < 8; ++j) {
      const I scale = or_i(and_i(low, splat_i(15)), shift_left<4>(and_i(high, splat_i(3))));
      p.scale[j] = sub_i(scale, splat_i(32));
      low = shift_right<4>(low);
      high = shift_right<2>(high);
      unpack_nibbles(block + 8 + 16 * j, stride, p.q + 8 * j);
    }
  }
  static ADZE_INLINE I value(I code) { return lookup16(code, kIq4Prepared); }
};

// --- floats: 16 inputs at a time
// -----------------------------------------------------------------------------------------

struct F32 {
  static constexpr int kBytes = 64;  // of 16 inputs
  static ADZE_INLINE V packed(const std::byte* p) { return as_float(load_64(p)); }
  static void unpack(const std::byte* p, std::size_t stride, PanelFloat& out) {
    I raw[4];
    for (int c = 0; c < 4; ++c) {
      load_rows16(p + 16 * c, stride, raw);
      for (int i = 0; i < 4; ++i) out.w[4 * c + i] = as_float(raw[i]);
    }
  }
};
struct F16 {
  static constexpr int kBytes = 32;
  static ADZE_INLINE V packed(const std::byte* p) { return load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
  static void unpack(const std::byte* p, std::size_t stride, PanelFloat& out) {
    I raw[8];
    load_rows16(p, stride, raw);
    load_rows16(p + 16, stride, raw + 4);
    for (int i = 0; i < 8; ++i) {
      out.w[2 * i] = f16_low(raw[i]);
      out.w[2 * i + 1] = f16_high(raw[i]);
    }
  }
};
struct Bf16 {
  static constexpr int kBytes = 32;
  static ADZE_INLINE V packed(const std::byte* p) { return load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
  static void unpack(const std::byte* p, std::size_t stride, PanelFloat& out) {
    I raw[8];
    load_rows16(p, stride, raw);
    load_rows16(p + 16, stride, raw + 4);
    for (int i = 0; i < 8; ++i) {
      out.w[2 * i] = as_float(shift_left<16>(raw[i]));
      out.w[2 * i + 1] = as_float(and_i(raw[i], splat_i(static_cast<std::int32_t>(0xffff0000u))));
    }
  }
};

// 16 rows of k floats; up to the next multiple of 16 the panel is completed with zeros.
template <class F>
inline void unpack_floats(const std::byte* rows, std::size_t stride, int k, PanelFloat* panel) {
  const int blocks = k / 16, rest = k % 16;
  for (int b = 0; b < blocks; ++b) F::unpack(rows + static_cast<std::size_t>(b) * F::kBytes, stride, panel[b]);
  if (rest == 0) return;
  std::byte last[16][F::kBytes] = {};
  const std::size_t from = static_cast<std::size_t>(blocks) * F::kBytes;
  for (std::size_t r = 0; r < 16; ++r) {
    __builtin_memcpy(last[r], rows + r * stride + from, static_cast<std::size_t>(rest * F::kBytes / 16));
  }
  F::unpack(last[0], F::kBytes, panel[blocks]);
}

// Scratch for the last group's rows when there are fewer than 16, completed with zeros.
inline std::size_t tail_bytes(std::size_t row_stride) { return 16 * row_stride + 64; }

// Where the 16 rows of a group start; the last, incomplete group is copied beside zeros first.
inline const std::byte* group_rows(const MatmulArgs& a, const std::byte* first, std::size_t stride, int group,
                                   std::byte* tail) {
  const std::byte* rows = first + static_cast<std::size_t>(group) * kGroupRows * stride;
  const int present = a.rows - group * kGroupRows;
  if (present >= kGroupRows) return rows;
  const std::size_t bytes = static_cast<std::size_t>(present) * stride;
  __builtin_memcpy(tail, rows, bytes);
  __builtin_memset(tail + bytes, 0, kGroupRows * stride - bytes);
  return tail;
}
