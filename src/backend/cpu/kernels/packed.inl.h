// The packed layout, one for every weight type, row count and instruction set: groups of 16 output rows, complete, the
// last one with zeros. Inside a group a vector's lane is a row, so a product needs no sums across lanes:
//
//   headers   scales, [block][...][16 rows]; then zeros up to a multiple of 64 bytes
//   units     32 inputs, 64 * kBits bytes. As bytes they would be 8 vectors, four inputs to a lane; codes of 8 bits are
//             just that. Smaller ones are cut into planes of 4, 2 and 1 bits, low bits first: vector i of a plane of n
//             bits, which has n vectors, holds in each of its bytes the bits of vectors i, i + n, i + 2 n ... of the 8
//   floats    [input][16 rows] in the file's own type, inputs up to a multiple of 16
//
// A header is: blocks of 32: d (and m) as float16, or MXFP4's exponents; blocks of 256: d (and dmin) as float16, then
// bytes: of types with minima 16 scales a sub-block and the minima as pairs of sub-blocks, else the scales as such
// pairs; Q2_K's pairs hold both in nibbles. Codes with scales beside them have headers by group: the scale and the bias
// as they are. docs/design/0014 says why.

template <int Bits>
constexpr std::size_t kUnitBytes = 64 * Bits;

// Bit fields of `Width` bits from `plane`, moved up by Shift, for each of the 8 vectors.
template <int Width, int Shift, int I0 = 0>
ADZE_INLINE void add_plane(const std::byte* plane, I q[8]) {
  if constexpr (I0 < 8) {
    constexpr int vectors = Width, field = I0 / vectors;  // 8 * Width bits / 8 bits a byte
    constexpr int from = field * Width, mask = ((1 << Width) - 1) << Shift;
    const I raw = load_64(plane + 64 * (I0 % vectors));
    I bits = raw;
    if constexpr (from > Shift) bits = shift_right<from - Shift>(raw);
    if constexpr (from < Shift) bits = shift_left<Shift - from>(raw);
    bits = and_i(bits, splat_i(mask * 0x01010101));
    q[I0] = Shift == 0 ? bits : or_i(q[I0], bits);
    add_plane<Width, Shift, I0 + 1>(plane, q);
  }
}

template <int Bits>
ADZE_INLINE void load_unit(const std::byte* p, I q[8]) {
  static_assert(Bits == 8 || (Bits >= 2 && Bits <= 6));
  if constexpr (Bits == 8) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) q[i] = load_64(p + 64 * i);
  } else if constexpr (Bits >= 4) {
    add_plane<4, 0>(p, q);
    if constexpr (Bits == 5) add_plane<1, 4>(p + 256, q);
    if constexpr (Bits == 6) add_plane<2, 4>(p + 256, q);
  } else {
    add_plane<2, 0>(p, q);
    if constexpr (Bits == 3) add_plane<1, 2>(p + 128, q);
  }
}

template <int Width, int Shift>
inline void store_plane(std::byte* plane, const I q[8]) {
  const I mask = splat_i(((1 << Width) - 1) * 0x01010101);
  for (int v = 0; v < Width; ++v) {
    I out = splat_i(0);
    for (int field = 8 / Width - 1; field >= 0; --field) {
      out = or_i(shift_left<Width>(out), and_i(shift_right<Shift>(q[v + Width * field]), mask));
    }
    store_64(plane + 64 * v, out);
  }
}

template <int Bits>
inline void store_unit(std::byte* p, const I q[8]) {
  if constexpr (Bits == 8) {
    for (int i = 0; i < 8; ++i) store_64(p + 64 * i, q[i]);
  } else if constexpr (Bits >= 4) {
    store_plane<4, 0>(p, q);
    if constexpr (Bits == 5) store_plane<1, 4>(p + 256, q);
    if constexpr (Bits == 6) store_plane<2, 4>(p + 256, q);
  } else {
    store_plane<2, 0>(p, q);
    if constexpr (Bits == 3) store_plane<1, 2>(p + 128, q);
  }
}

// --- headers ---------------------------------------------------------------------------------------------------------

constexpr std::size_t padded64(std::size_t n) { return (n + 63) / 64 * 64; }

ADZE_INLINE V header_halves(const std::byte* p) { return load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
inline void store_header_halves(std::byte* p, V v) { store_f16(reinterpret_cast<std::uint16_t*>(p), v); }

// The low byte of each lane to p[step * lane].
inline void store_lane_bytes(std::byte* p, std::size_t step, I lanes) {
  std::int8_t bytes[16];
  store_i8(bytes, lanes);
  for (std::size_t r = 0; r < 16; ++r) p[step * r] = static_cast<std::byte>(bytes[r]);
}

template <class F>
constexpr bool kIsGrouped = requires { F::kGrouped; };
template <class F>
constexpr bool kHasExponents = requires { F::kExponents; };  // a block of 32 with an exponent for a scale
template <class F>
constexpr bool kIs256 = requires { F::kSub; };
template <class F>
constexpr bool kHasNibbleScales = requires { F::kNibbleScales; };

template <class F>
struct Header32 {
  static constexpr std::size_t kBytes = kHasExponents<F> ? 16 : F::kHasMin ? 64 : 32;
  static ADZE_INLINE void load(const std::byte* p, V& d, V& m) {
    if constexpr (kHasExponents<F>) {
      d = half_of_exponents(load_u8(p));
    } else {
      d = header_halves(p);
      if constexpr (F::kHasMin) m = header_halves(p + 32);
    }
  }
  static void store(std::byte* p, const std::byte* block, std::size_t stride, const Panel32& read) {
    if constexpr (kHasExponents<F>) {
      store_lane_bytes(p, 1, load_rows4(block, stride));
    } else {
      store_header_halves(p, read.d);
      if constexpr (F::kHasMin) store_header_halves(p + 32, read.m);
    }
  }
};

// scale(s) of sub-block s, and pair(s / 2): two 16-bit halves a lane, of the minima where there are some, else of the
// scales.
template <class F>
struct Header256 {
  static constexpr int kSub = F::kSub;
  static constexpr std::size_t kPairs = kSub / 2 * 32;
  static constexpr std::size_t kScales = F::kHasMin && !kHasNibbleScales<F> ? kSub * 16 : 0;
  static constexpr std::size_t kFloats = F::kHasMin ? 64 : 32;
  static constexpr std::size_t kBytes = kFloats + kScales + kPairs;
  const std::byte* p;

  ADZE_INLINE V d() const { return header_halves(p); }
  ADZE_INLINE V dmin() const { return header_halves(p + 32); }
  ADZE_INLINE I pair(int i) const {
    const I pairs = load_pairs(p + kFloats + kScales + 32 * i);
    return kHasNibbleScales<F> ? and_i(shift_right<4>(pairs), splat_i(0x000f000f)) : pairs;
  }
  ADZE_INLINE I scale(int s) const {
    if constexpr (kScales > 0) {
      return load_u8(p + kFloats + 16 * s);
    } else {
      const I pairs = load_pairs(p + kFloats + 32 * (s / 2));
      if constexpr (kHasNibbleScales<F>) {
        return and_i(s % 2 == 0 ? pairs : shift_right<16>(pairs), splat_i(15));
      } else {
        return shift_right_signed<16>(s % 2 == 0 ? shift_left<16>(pairs) : pairs);
      }
    }
  }
  static void store(std::byte* p, const Panel256<kSub>& read) {
    store_header_halves(p, read.d);
    if constexpr (F::kHasMin) store_header_halves(p + 32, read.dmin);
    for (int s = 0; s < kSub; ++s) {
      I in_pair = F::kHasMin ? read.min[s] : read.scale[s];
      if constexpr (kHasNibbleScales<F>) in_pair = or_i(read.scale[s], shift_left<4>(in_pair));
      if constexpr (kScales > 0) store_lane_bytes(p + kFloats + 16 * s, 1, read.scale[s]);
      store_lane_bytes(p + kFloats + kScales + 32 * (s / 2) + s % 2, 2, in_pair);
    }
  }
};

// --- where things are in a group -------------------------------------------------------------------------------------

inline std::size_t bytes_of_scale(tensor::GroupScales::Type type) {
  using Type = tensor::GroupScales::Type;
  return type == Type::f32 ? 4 : type == Type::e8m0 ? 1 : 2;
}

template <class F>
constexpr std::size_t header_bytes(int k, const tensor::GroupScales& groups) {
  if constexpr (kIsGrouped<F>) {
    const auto count = static_cast<std::size_t>(k / groups.size) * (F::kHasMin ? 2 : 1);
    return padded64(count * 16 * bytes_of_scale(groups.type));
  } else if constexpr (kIs256<F>) {
    return padded64(static_cast<std::size_t>(k / 256) * Header256<F>::kBytes);
  } else {
    return padded64(static_cast<std::size_t>(k / 32) * Header32<F>::kBytes);
  }
}

template <class F>
std::size_t packed_bytes(int k, const tensor::GroupScales& groups) {
  return header_bytes<F>(k, groups) + static_cast<std::size_t>(k / 32) * kUnitBytes<F::kBits>;
}

// --- scales beside the codes -----------------------------------------------------------------------------------------

// The scales and biases of a group of 16 rows from the file into a header: [group][scale, bias][16 rows].
template <class F>
inline void pack_scales(const MatmulArgs& a, int group, std::byte* tail, std::byte* out) {
  const std::size_t size = bytes_of_scale(a.groups.type), step = 16 * size * (F::kHasMin ? 2 : 1);
  const auto pack = [&](const std::byte* values, std::byte* to) {
    const std::byte* rows = group_rows(a, values, a.scale_stride, group, tail);
    for (std::size_t r = 0; r < 16; ++r) {
      for (std::size_t g = 0; g < static_cast<std::size_t>(a.k / a.groups.size); ++g) {
        __builtin_memcpy(to + g * step + r * size, rows + r * a.scale_stride + g * size, size);
      }
    }
  };
  pack(a.groups.scales, out);
  if constexpr (F::kHasMin) pack(a.groups.biases, out + 16 * size);
}

inline V header_scale(tensor::GroupScales::Type type, const std::byte* p) {
  using Type = tensor::GroupScales::Type;
  switch (type) {
    case Type::f32: return as_float(load_64(p));
    case Type::f16: return header_halves(p);
    case Type::bf16: return load_bf16(reinterpret_cast<const std::uint16_t*>(p));
    case Type::e8m0: return half_of_exponents(load_u8(p));
  }
  __builtin_unreachable();
}

// The header's scales as vectors of floats (ScalePanels).
template <class F>
inline void load_packed_scales(const MatmulArgs& a, const std::byte* header, std::byte* room) {
  const std::size_t step = 16 * bytes_of_scale(a.groups.type);
  auto* scales = reinterpret_cast<PanelFloat*>(room);
  auto* biases = reinterpret_cast<PanelFloat*>(room + one_scale_panel(a.k));
  for (int g = 0; g < a.k / a.groups.size; ++g) {
    scales[g / 16].w[g % 16] = header_scale(a.groups.type, header);
    header += step;
    if constexpr (F::kHasMin) {
      biases[g / 16].w[g % 16] = header_scale(a.groups.type, header);
      header += step;
    }
  }
}

// --- packing ---------------------------------------------------------------------------------------------------------

template <class F>
void pack_codes(const MatmulArgs& a, int group, std::byte* out) {
  std::byte* units = out + header_bytes<F>(a.k, a.groups);
  __builtin_memset(units - 64, 0, 64);  // what completes the headers
  if constexpr (kIsGrouped<F>) pack_scales<F>(a, group, a.panel, out);
  const std::byte* rows = group_rows(a, a.weights, a.row_stride, group, a.panel);
  if constexpr (kIs256<F>) {
    Panel256<F::kSub> read;
    for (int b = 0; b < a.k / 256; ++b) {
      F::read(rows + static_cast<std::size_t>(b) * F::kBytes, a.row_stride, read);
      Header256<F>::store(out + static_cast<std::size_t>(b) * Header256<F>::kBytes, read);
      for (int j = 0; j < 8; ++j, units += kUnitBytes<F::kBits>) store_unit<F::kBits>(units, read.q + 8 * j);
    }
  } else {
    Panel32 read;
    for (int b = 0; b < a.k / 32; ++b, units += kUnitBytes<F::kBits>) {
      const std::byte* block = rows + static_cast<std::size_t>(b) * F::kBytes;
      F::read(block, a.row_stride, read);
      if constexpr (!kIsGrouped<F>) {
        Header32<F>::store(out + static_cast<std::size_t>(b) * Header32<F>::kBytes, block, a.row_stride, read);
      }
      store_unit<F::kBits>(units, read.q);
    }
  }
}

template <class F>
std::size_t packed_float_bytes(int k, const tensor::GroupScales&) {
  return static_cast<std::size_t>(k + 15) / 16 * 16 * F::kBytes;
}

// [input][16 rows] without a change of type: the rows turned over, element by element.
template <class F>
void pack_floats(const MatmulArgs& a, int group, std::byte* out) {
  constexpr std::size_t size = F::kBytes / 16;
  const std::byte* rows = group_rows(a, a.weights, a.row_stride, group, a.panel);
  const auto k = static_cast<std::size_t>(a.k), padded = (k + 15) / 16 * 16;
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t r = 0; r < 16; ++r) {
      __builtin_memcpy(out + (16 * i + r) * size, rows + r * a.row_stride + i * size, size);
    }
  }
  __builtin_memset(out + 16 * k * size, 0, 16 * (padded - k) * size);
}
