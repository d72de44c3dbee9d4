// Panels: 16 rows of a weight matrix brought into lane order. Dword i of a block holds 4 consecutive inputs of one row
// per lane, so that a byte dot product accumulates one output row per lane and nothing is ever summed across lanes.
// One struct per block format says how to bring its blocks there; the multiplication (matmul.inl.h) knows only panels.

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

// --- blocks of 32: [kSigned] quants are signed bytes, else 0..127 with kOffset to subtract; [kHasMin] m is added
// ----------

struct Q4_0 {
  static constexpr int kBytes = 18, kOffset = 8;
  static constexpr bool kSigned = false, kHasMin = false;
  static ADZE_INLINE void unpack(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    unpack_nibbles(block + 2, stride, p.q);
  }
};
struct Q4_1 {
  static constexpr int kBytes = 20, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  static ADZE_INLINE void unpack(const std::byte* block, std::size_t stride, Panel32& p) {
    const I dm = load_rows4(block, stride);
    p.d = f16_low(dm);
    p.m = f16_high(dm);
    unpack_nibbles(block + 4, stride, p.q);
  }
};
struct Q5_0 {
  static constexpr int kBytes = 22, kOffset = 16;
  static constexpr bool kSigned = false, kHasMin = false;
  static ADZE_INLINE void unpack(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    unpack_nibbles(block + 6, stride, p.q);
    add_fifth_bits(load_rows4(block + 2, stride), p.q);
  }
};
struct Q5_1 {
  static constexpr int kBytes = 24, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  static ADZE_INLINE void unpack(const std::byte* block, std::size_t stride, Panel32& p) {
    const I dm = load_rows4(block, stride);
    p.d = f16_low(dm);
    p.m = f16_high(dm);
    unpack_nibbles(block + 8, stride, p.q);
    add_fifth_bits(load_rows4(block + 4, stride), p.q);
  }
};
struct Q8_0 {
  static constexpr int kBytes = 34, kOffset = 0;
  static constexpr bool kSigned = true, kHasMin = false;
  static ADZE_INLINE void unpack(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    load_rows16(block + 2, stride, p.q);
    load_rows16(block + 18, stride, p.q + 4);
#pragma GCC unroll 8
    for (I& q : p.q) q = prepare_signed(q);
  }
};

alignas(16) constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};
// E2M1 values doubled, plus 12 so that they are not negative.
alignas(16) constexpr std::int8_t kMxfp4Values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// 2^(e - 127) / 2, the half because the values are doubled; subnormal for e < 2.
inline float half_of_exponent(unsigned e) {
  const std::uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
  float half = 0;
  __builtin_memcpy(&half, &bits, 4);
  return half;
}

struct Iq4Nl {
  static constexpr int kBytes = 18, kOffset = 0;
  static constexpr bool kSigned = true, kHasMin = false;
  static ADZE_INLINE void unpack(const std::byte* block, std::size_t stride, Panel32& p) {
    p.d = f16_low(load_rows4(block, stride));
    unpack_nibbles(block + 2, stride, p.q);
#pragma GCC unroll 8
    for (I& q : p.q) q = prepare_signed(lookup16(q, kIq4Values));
  }
};
struct Mxfp4 {
  static constexpr int kBytes = 17, kOffset = 12;
  static constexpr bool kSigned = false, kHasMin = false;
  static ADZE_INLINE void unpack(const std::byte* block, std::size_t stride, Panel32& p) {
    std::int32_t e[16];
    float d[16];
    store_i(e, and_i(load_rows4(block, stride), splat_i(0xff)));
    for (int r = 0; r < 16; ++r) d[r] = half_of_exponent(static_cast<unsigned>(e[r]));
    p.d = load(d);
    unpack_nibbles(block + 1, stride, p.q);
#pragma GCC unroll 8
    for (I& q : p.q) q = lookup16(q, kMxfp4Values);
  }
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
  static constexpr int kBytes = 84, kOffset = 0, kSub = 16;
  static constexpr bool kSigned = false, kHasMin = true;
  static void unpack(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
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
};

struct Q3K {
  static constexpr int kBytes = 110, kOffset = 4, kSub = 16;
  static constexpr bool kSigned = false, kHasMin = false;
  static void unpack(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
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
};

struct Q4K {
  static constexpr int kBytes = 144, kOffset = 0, kSub = 8;
  static constexpr bool kSigned = false, kHasMin = true;
  static void unpack(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
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
};

struct Q5K {
  static constexpr int kBytes = 176, kOffset = 0, kSub = 8;
  static constexpr bool kSigned = false, kHasMin = true;
  static void unpack(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
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
};

struct Q6K {
  static constexpr int kBytes = 210, kOffset = 32, kSub = 16;
  static constexpr bool kSigned = false, kHasMin = false;
  static void unpack(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
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
};

struct Iq4Xs {
  static constexpr int kBytes = 136, kOffset = 0, kSub = 8;
  static constexpr bool kSigned = true, kHasMin = false;
  static void unpack(const std::byte* block, std::size_t stride, Panel256<kSub>& p) {
    const I dh = load_rows4(block, stride);  // d, then 2 high bits of each scale
    p.d = f16_low(dh);
    I high = shift_right<16>(dh), low = load_rows4(block + 4, stride);
    for (int j = 0; j < 8; ++j) {
      const I scale = or_i(and_i(low, splat_i(15)), shift_left<4>(and_i(high, splat_i(3))));
      p.scale[j] = sub_i(scale, splat_i(32));
      low = shift_right<4>(low);
      high = shift_right<2>(high);
      unpack_nibbles(block + 8 + 16 * j, stride, p.q + 8 * j);
      for (int i = 0; i < 8; ++i) p.q[8 * j + i] = prepare_signed(lookup16(p.q[8 * j + i], kIq4Values));
    }
  }
};

// --- floats: 16 inputs at a time
// -----------------------------------------------------------------------------------------

struct F32 {
  static constexpr int kBytes = 64;  // of 16 inputs
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
