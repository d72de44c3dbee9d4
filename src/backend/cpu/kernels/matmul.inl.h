// Matrix products. The order of every reduction is fixed per weight type and the same for one row and for many, for
// packed weights and for those of the file:
//
//   blocks of 32   acc = fma(d * dx, float(sum q x), acc), then acc = fma(m, dx * sum x, acc); block by block; codes
//                  with scales beside them are such blocks, also where more than 32 share a scale
//   blocks of 256  acc = fma(d * dx, float(sum_j scale_j sum q x), acc), then acc = fma(-(dmin * dx), float(sum_j min_j
//                  sum x), acc); block by block; everything inside a block is exact integer arithmetic
//   floats         four chains over k mod 4, acc_c = fma(w, x, acc_c), summed as (0 + 1) + (2 + 3)
//
// Packed weights (packed.inl.h) go from their stream straight into registers, again for each tile of rows: the group is
// in the first cache then, and unpacking it once more costs less than reading wide bytes would (lab/README.md). Of
// weights as the file has them a group's panel of bytes is made in cache and walked once per tile.

template <int N>
struct Int {
  static constexpr int value = N;
};

// Calls f(Int<n>) for 1 <= n <= kMaxTile.
template <int N = kMaxTile, class F>
inline void with_count(int n, F f) {
  if constexpr (N == 1) {
    f(Int<1>{});
  } else {
    if (n == N) {
      f(Int<N>{});
    } else {
      with_count<N - 1>(n, f);
    }
  }
}

inline std::int32_t dword_at(const std::int8_t* p, int i) {
  std::int32_t x = 0;
  __builtin_memcpy(&x, p + 4 * i, 4);
  return x;
}

template <bool Signed>
ADZE_INLINE Dot dot4(Dot acc, I q, std::int32_t x) {
  if constexpr (Signed) {
    return dot4_signed(acc, q, x);
  } else {
    return dot4_small(acc, q, x);
  }
}

// --- one block times N rows of activations ---------------------------------------------------------------------------

// What a product needs to know of a weight type; types of one class share their code for panels. Offset: of the bytes,
// kSignedBias included, not 0. Run: dwords whose products a Dot holds.
template <bool Signed, bool Offset, bool Min, int Sub, int Run>
struct Class {
  static constexpr bool kSigned = Signed, kHasOffset = Offset, kHasMin = Min;
  static constexpr int kRun = Run;
  static constexpr int kSub = Sub;  // sub-blocks of a block of 256; 0: blocks of 32
  static constexpr int kElements = Sub == 0 ? 32 : 256;
};
template <class F>
constexpr std::int32_t kOffsetOf = (F::kSigned ? kSignedBias : 0) + F::kOffset;
template <class F>
constexpr int kSubOf = 0;
template <class F>
  requires kIs256<F>
constexpr int kSubOf<F> = F::kSub;
template <class F>
constexpr int kLargestOf = F::kSigned ? 128 : (1 << F::kBits) - 1;  // of the bytes, without their sign
template <class F>
  requires requires { F::kLargest; }
constexpr int kLargestOf<F> = F::kLargest;
template <class F>
constexpr int kRunOf = kDotRun<kLargestOf<F>> >= 8   ? 8
                       : kDotRun<kLargestOf<F>> >= 4 ? 4
                       : kDotRun<kLargestOf<F>> >= 2 ? 2
                                                     : 1;
template <class F>
using ClassOf = Class<F::kSigned, kOffsetOf<F> != 0, F::kHasMin, kSubOf<F>, kRunOf<F>>;

// sums[t] = close(sums[t], the dots of `Dwords` vectors of weights with row t), a run at a time.
template <class C, int Dwords, int N, class Open, class Close>
ADZE_INLINE void add_dots(const I* q, const std::int8_t* quants, I* sums, Open open, Close close) {
  constexpr int run = C::kRun < Dwords ? C::kRun : Dwords;
#pragma GCC unroll 8
  for (int first = 0; first < Dwords; first += run) {
    Dot dot[N];
#pragma GCC unroll 12
    for (int t = 0; t < N; ++t) dot[t] = open(sums[t]);
#pragma GCC unroll 8
    for (int i = first; i < first + run; ++i) {
#pragma GCC unroll 12
      for (int t = 0; t < N; ++t) dot[t] = dot4<C::kSigned>(dot[t], q[i], dword_at(quants, i * N + t));
    }
#pragma GCC unroll 12
    for (int t = 0; t < N; ++t) sums[t] = close(sums[t], dot[t]);
  }
}

template <class C, int N>
ADZE_INLINE void multiply_block32(const I q[8], V d, V m, const QuantisedRows& x, int block, std::int32_t offset,
                                  V* acc) {
  const std::int8_t* quants = x.quants + static_cast<std::size_t>(block) * (32 * N);
  const std::size_t at = static_cast<std::size_t>(block) * N;
  I dot[N];
#pragma GCC unroll 12
  for (int t = 0; t < N; ++t) {
    dot[t] = splat_i(C::kHasOffset ? -offset * x.sums[at + static_cast<std::size_t>(t)] : 0);
  }
  add_dots<C, 8, N>(q, quants, dot, open_dot, close_dot);
#pragma GCC unroll 12
  for (int t = 0; t < N; ++t) {
    acc[t] = fma(mul(d, splat(x.scales[at + static_cast<std::size_t>(t)])), to_float(dot[t]), acc[t]);
    if constexpr (C::kHasMin) acc[t] = fma(m, splat(x.scaled_sums[at + static_cast<std::size_t>(t)]), acc[t]);
  }
}

// `unit(j, q)` gives 32 inputs' bytes, `header` scales and pairs (Header256). Sub-blocks are taken in pairs.
template <class C, int N, class Header, class Unit>
ADZE_INLINE void multiply_block256(const Header& header, Unit unit, const QuantisedRows& x, int block,
                                   std::int32_t offset, V* acc) {
  constexpr int dwords = 64 / C::kSub;  // of a sub-block
  constexpr int first_pair = C::kSub == 16 ? 0 : 8;
  const std::int8_t* quants = x.quants + static_cast<std::size_t>(block) * (256 * N);
  const std::int32_t* sums = x.sums + static_cast<std::size_t>(block) * (16 * N);
  I total[N], paired[N];
#pragma GCC unroll 12
  for (int t = 0; t < N; ++t) total[t] = paired[t] = splat_i(0);
  for (int p = 0; p < C::kSub / 2; ++p) {
    if constexpr (C::kHasMin || C::kHasOffset) {
      const I pair = header.pair(p);
#pragma GCC unroll 12
      for (int t = 0; t < N; ++t) paired[t] = dot2(paired[t], pair, sums[(first_pair + p) * N + t]);
    }
    I q[8];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int sub = 2 * p + half;
      if (half == 0 || C::kSub == 8) unit(C::kSub == 16 ? p : sub, q);
      const I* of_sub = q + (C::kSub == 16 ? 4 * half : 0);
      const I scales = dot_scales(header.scale(sub));
      add_dots<C, dwords, N>(
          of_sub, quants + 4 * sub * dwords * N, total, [](I) { return open_dot(splat_i(0)); },
          [&](I sum, Dot dot) { return close_scaled(sum, dot, scales); });
    }
  }
  const V d = header.d();
#pragma GCC unroll 12
  for (int t = 0; t < N; ++t) {
    const V dx = splat(x.scales[static_cast<std::size_t>(block * N + t)]);
    if constexpr (C::kHasOffset) total[t] = sub_i(total[t], mul_i(paired[t], splat_i(offset)));
    acc[t] = fma(mul(d, dx), to_float(total[t]), acc[t]);
    if constexpr (C::kHasMin) acc[t] = fma(sub(zero(), mul(header.dmin(), dx)), to_float(paired[t]), acc[t]);
  }
}

// The rows of a tile that starts at first_row.
inline QuantisedRows tile_rows(const QuantisedRows& x, int first_row, int k, int block, int sums_block) {
  const auto r = static_cast<std::size_t>(first_row);
  return {x.quants + r * static_cast<std::size_t>(k), x.scales + r * static_cast<std::size_t>(k / block),
          x.scaled_sums + r * static_cast<std::size_t>(k / block),
          x.sums + r * static_cast<std::size_t>(k / sums_block)};
}

// --- panels: a group's bytes to multiply with, in cache --------------------------------------------------------------

template <int Sub>
struct BytePanel {
  I q[64];
  I scales[Sub], pairs[Sub / 2];
  V d_, dmin_;
  ADZE_INLINE I scale(int s) const { return scales[s]; }
  ADZE_INLINE I pair(int p) const { return pairs[p]; }
  ADZE_INLINE V d() const { return d_; }
  ADZE_INLINE V dmin() const { return dmin_; }
};
template <>
struct BytePanel<0> : Panel32 {};

template <class C>
void multiply_panel(const BytePanel<C::kSub>* panel, int k, const QuantisedRows& rows, Tile tile, std::int32_t offset,
                    V* result) {
  const QuantisedRows x = tile_rows(rows, tile.first, k, C::kElements, C::kSub == 0 ? 32 : 16);
  const int blocks = k / C::kElements;
  with_count(tile.count, [&](auto n) {
    constexpr int N = decltype(n)::value;
    V acc[N];
    for (V& v : acc) v = zero();
    for (int b = 0; b < blocks; ++b) {
      const BytePanel<C::kSub>& p = panel[b];
      if constexpr (C::kSub == 0) {
        multiply_block32<C, N>(p.q, p.d, p.m, x, b, offset, acc);
      } else {
        const auto unit = [&](int j, I q[8]) __attribute__((always_inline)) {
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i) q[i] = p.q[8 * j + i];
        };
        multiply_block256<C, N>(p, unit, x, b, offset, acc);
      }
    }
    for (int t = 0; t < N; ++t) result[t] = acc[t];
  });
}

// --- groups of 16 output rows
// ---------------------------------------------------------------------------------------------

// The scales of a group of 16 rows, unpacked into `room`. Its tail is free to borrow until the rows themselves are
// taken: a row's scales are no longer than its codes.
inline void load_scales(const MatmulArgs& a, int group, std::byte* room, std::byte* tail) {
  const int groups = a.k / a.groups.size;
  const auto unpack = [&](const std::byte* values, std::byte* to) {
    const std::byte* rows = group_rows(a, values, a.scale_stride, group, tail);
    unpack_scales(a.groups.type, rows, a.scale_stride, groups, reinterpret_cast<PanelFloat*>(to));
  };
  unpack(a.groups.scales, room);
  if (a.groups.biases != nullptr) unpack(a.groups.biases, room + one_scale_panel(a.k));
}
inline ScalePanels loaded_scales(const MatmulArgs& a, const std::byte* room) {
  return {reinterpret_cast<const PanelFloat*>(room), reinterpret_cast<const PanelFloat*>(room + one_scale_panel(a.k)),
          a.groups.size == 32   ? 0
          : a.groups.size == 64 ? 1
                                : 2};
}

inline V with_bias(const MatmulArgs& a, int group, V y) {
  if (a.bias == nullptr) return y;
  const int present = a.rows - group * kGroupRows;
  return add(y, load_n(a.bias + group * kGroupRows, present < kGroupRows ? present : kGroupRows));
}

inline void write_group(const MatmulArgs& a, int group, int token, V y) {
  float* out = a.out + static_cast<std::size_t>(token) * a.ld_out + group * kGroupRows;
  const int present = a.rows - group * kGroupRows;
  if (present >= kGroupRows) {
    store(out, a.accumulate ? add(load(out), y) : y);
  } else {
    store_n(out, a.accumulate ? add(load_n(out, present), y) : y, present);
  }
}

template <class F>
struct Int8Source {
  using C = ClassOf<F>;
  using Panel = BytePanel<C::kSub>;
  static std::size_t panels(int k) {
    return static_cast<std::size_t>(k / C::kElements) * sizeof(Panel) + (kIsGrouped<F> ? scale_panels(k) : 0);
  }
  static std::byte* scale_room(const MatmulArgs& a) {
    return a.panel + static_cast<std::size_t>(a.k / C::kElements) * sizeof(Panel);
  }
  static ADZE_INLINE void values(I q[8]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) q[i] = F::value(q[i]);
  }

  // Before the tiles of a packed group.
  static void open(const MatmulArgs& a, int group) {
    if constexpr (kIsGrouped<F>) load_packed_scales<F>(a, packed_group(a, group), scale_room(a));
  }
  // Streams the group through registers for a tile of activations; result[t] is lane = output row.
  static void stream(const MatmulArgs& a, int group, Tile tile, V* result) {
    const std::byte* header = packed_group(a, group);
    const QuantisedRows x = tile_rows(a.quantised, tile.first, a.k, C::kElements, C::kSub == 0 ? 32 : 16);
    const int blocks = a.k / C::kElements;
    with_count(tile.count, [&](auto n) {
      constexpr int N = decltype(n)::value;
      const std::byte* units = header + header_bytes<F>(a.k, a.groups);
      V acc[N];
      for (V& v : acc) v = zero();
      for (int b = 0; b < blocks; ++b) {
        multiply_packed<N>(a, header, units, x, b, acc);
        units += (C::kElements / 32) * kUnitBytes<F::kBits>;
      }
      for (int t = 0; t < N; ++t) result[t] = acc[t];
    });
  }

  static void fill(const MatmulArgs& a, int group) {
    auto* panel = reinterpret_cast<Panel*>(a.panel);
    const int count = a.k / C::kElements;
    std::byte* const tail = a.panel + panels(a.k);
    if constexpr (kIsGrouped<F>) load_scales(a, group, scale_room(a), tail);
    const std::byte* rows = group_rows(a, a.weights, a.row_stride, group, tail);
    for (int b = 0; b < count; ++b) {
      fill_from_file(a, rows + static_cast<std::size_t>(b) * F::kBytes, b, panel[b]);
    }
  }

  static void multiply(const MatmulArgs& a, Tile tile, V* result) {
    multiply_panel<C>(reinterpret_cast<const Panel*>(a.panel), a.k, a.quantised, tile, kOffsetOf<F>, result);
  }
  static std::size_t packed_size(int k, const tensor::GroupScales& groups) { return packed_bytes<F>(k, groups); }

 private:
  static ADZE_INLINE const std::byte* packed_group(const MatmulArgs& a, int group) {
    return a.packed + static_cast<std::size_t>(group) * packed_bytes<F>(a.k, a.groups);
  }
  static ADZE_INLINE void scales32(const MatmulArgs& a, const std::byte* header, int block, V& d, V& m) {
    if constexpr (kIsGrouped<F>) {
      const ScalePanels panels = loaded_scales(a, scale_room(a));
      d = panels.scale(block);
      if constexpr (F::kHasMin) m = panels.bias(block);
    } else {
      Header32<F>::load(header + static_cast<std::size_t>(block) * Header32<F>::kBytes, d, m);
    }
  }
  template <int N>
  static ADZE_INLINE void multiply_packed(const MatmulArgs& a, const std::byte* header, const std::byte* units,
                                          const QuantisedRows& x, int block, V* acc) {
    const std::size_t ahead = a.ahead;
#pragma GCC unroll 8
    for (std::size_t line = 0; line < kUnitBytes<F::kBits>; line += 64) __builtin_prefetch(units + ahead + line);
    if constexpr (C::kSub == 0) {
      I q[8];
      load_unit<F::kBits>(units, q);
      values(q);
      V d = zero(), m = zero();
      scales32(a, header, block, d, m);
      multiply_block32<C, N>(q, d, m, x, block, kOffsetOf<F>, acc);
    } else {
      const Header256<F> head{header + static_cast<std::size_t>(block) * Header256<F>::kBytes};
      const auto unit = [&](int j, I q[8]) __attribute__((always_inline)) {
        const std::byte* from = units + static_cast<std::size_t>(j) * kUnitBytes<F::kBits>;
#pragma GCC unroll 8
        for (std::size_t line = 0; line < kUnitBytes<F::kBits>; line += 64) __builtin_prefetch(from + ahead + line);
        load_unit<F::kBits>(from, q);
        values(q);
      };
      multiply_block256<C, N>(head, unit, x, block, kOffsetOf<F>, acc);
    }
  }

  static ADZE_INLINE void fill_from_file(const MatmulArgs& a, const std::byte* blocks, int block, Panel& p) {
    if constexpr (C::kSub == 0) {
      F::read(blocks, a.row_stride, p);
      values(p.q);
      if constexpr (kIsGrouped<F>) scales32(a, nullptr, block, p.d, p.m);
    } else {
      Panel256<C::kSub> read;
      F::read(blocks, a.row_stride, read);
      for (int i = 0; i < 64; ++i) p.q[i] = F::value(read.q[i]);
      p.d_ = read.d;
      if constexpr (F::kHasMin) p.dmin_ = read.dmin;
      for (int s = 0; s < C::kSub; ++s) p.scales[s] = read.scale[s];
      const I* paired = F::kHasMin ? read.min : read.scale;
      for (int i = 0; i < C::kSub / 2; ++i) {
        p.pairs[i] = or_i(and_i(paired[2 * i], splat_i(0xffff)), shift_left<16>(paired[2 * i + 1]));
      }
    }
  }
};

// --- floats
// -----------------------------------------------------------------------------------------------------------------

constexpr int kFloatTile = kMaxTile < 6 ? kMaxTile : 6;

// Input i of 16 rows, from a panel or from a packed group.
struct PanelInputs {
  const PanelFloat* panel;
  ADZE_INLINE V at(int i) const { return panel[i / 16].w[i % 16]; }
};
template <class F>
struct PackedInputs {
  const std::byte* group;
  ADZE_INLINE V at(int i) const { return F::packed(group + static_cast<std::size_t>(i) * F::kBytes); }
};

template <int N, class Inputs>
inline void multiply_floats(const Inputs& inputs, int blocks, const float* x, std::size_t ld, V* result) {
  V acc[N][4];
  for (auto& row : acc) {
    for (V& v : row) v = zero();
  }
  for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const V w = inputs.at(16 * b + i);
#pragma GCC unroll 6
      for (int t = 0; t < N; ++t) {
        const float value = x[static_cast<std::size_t>(t) * ld + static_cast<std::size_t>(16 * b + i)];
        acc[t][i & 3] = fma(w, splat(value), acc[t][i & 3]);
      }
    }
  }
  for (int t = 0; t < N; ++t) result[t] = add(add(acc[t][0], acc[t][1]), add(acc[t][2], acc[t][3]));
}

// Codes of 16 rows and 32 inputs as numbers.
template <class F>
inline void unpack_codes(const MatmulArgs& a, const std::byte* rows, int block, const ScalePanels& scales,
                         PanelFloat* panel) {
  const V scale = scales.scale(block);
  I q[8];
  F::codes(rows + static_cast<std::size_t>(block) * F::kBytes, a.row_stride, q);
  for (int i = 0; i < 32; i += 4) {
    I bytes = F::kBase == 0 ? q[i / 4] : F::value(q[i / 4]);
    for (int j = 0; j < 4; ++j, bytes = shift_right<8>(bytes)) {
      const V value = mul(scale, to_float(sub_i(and_i(bytes, splat_i(255)), splat_i(F::kBase))));
      panel[i / 16].w[i % 16 + j] = F::kHasMin ? add(value, scales.bias(block)) : value;
    }
  }
}

// Float weights that are packed are multiplied from there; all others pass through a panel. F is void for block types,
// which are dequantised row by row first and never packed, nor are codes, for products with floats.
template <class F>
struct FloatSource {
  static constexpr bool kCanPack = requires { &F::packed; };
  static std::size_t blocks(int k) { return static_cast<std::size_t>((k + 15) / 16) * sizeof(PanelFloat); }
  static std::size_t panels(int k) { return blocks(k) + (kIsGrouped<F> ? scale_panels(k) : 0); }
  static std::size_t packed_size(int k, const tensor::GroupScales& groups) {
    if constexpr (kCanPack) return packed_float_bytes<F>(k, groups);
    return 0;
  }
  static void open(const MatmulArgs&, int) {}
  static void stream(const MatmulArgs& a, int group, Tile tile, V* result) {
    if constexpr (kCanPack) multiply_all(a, PackedInputs<F>{packed_group(a, group)}, tile, result);
  }
  static void fill(const MatmulArgs& a, int group) {
    std::byte* const tail = a.panel + panels(a.k);
    if constexpr (kIsGrouped<F>) load_scales(a, group, a.panel + blocks(a.k), tail);
    const std::byte* rows = group_rows(a, a.weights, a.row_stride, group, tail);
    auto* panel = reinterpret_cast<PanelFloat*>(a.panel);
    if constexpr (__is_same(F, void)) {
      alignas(64) float values[16][256];
      for (int k = 0; k < a.k; k += a.block_elements) {
        for (std::size_t r = 0; r < 16; ++r) {
          const std::byte* block =
              rows + r * a.row_stride + static_cast<std::size_t>(k / a.block_elements * a.block_bytes);
          a.dequantise(block, values[r], 1);
        }
        for (int i = 0; i < a.block_elements; i += 16) {
          F32::unpack(reinterpret_cast<const std::byte*>(values[0] + i), sizeof values[0], panel[(k + i) / 16]);
        }
      }
    } else if constexpr (kIsGrouped<F>) {
      const ScalePanels scales = loaded_scales(a, a.panel + blocks(a.k));
      for (int b = 0; b < a.k / 32; ++b) unpack_codes<F>(a, rows, b, scales, panel + 2 * b);
    } else {
      unpack_floats<F>(rows, a.row_stride, a.k, panel);
    }
  }
  static void multiply(const MatmulArgs& a, Tile tile, V* result) {
    multiply_all(a, PanelInputs{reinterpret_cast<const PanelFloat*>(a.panel)}, tile, result);
  }

 private:
  static const std::byte* packed_group(const MatmulArgs& a, int group) {
    return a.packed + static_cast<std::size_t>(group) * packed_size(a.k, a.groups);
  }
  template <class Inputs>
  static void multiply_all(const MatmulArgs& a, const Inputs& inputs, Tile tile, V* result) {
    const int steps = (a.k + 15) / 16;
    for (int i = 0; i < tile_count(tile.count, kFloatTile); ++i) {
      const Tile part = tile_at(i, tile.count, kFloatTile);
      const float* x = a.floats + static_cast<std::size_t>(tile.first + part.first) * a.ld_floats;
      with_count<kFloatTile>(part.count, [&](auto n) {
        multiply_floats<decltype(n)::value>(inputs, steps, x, a.ld_floats, result + part.first);
      });
    }
  }
};

// --- the kernels
// ---------------------------------------------------------------------------------------------------------------

// The results of one tile after the other of a group's rows: result[t], lane = output row.
template <class Source>
ADZE_INLINE void begin_group(const MatmulArgs& a, int group) {
  if (a.packed != nullptr) {
    Source::open(a, group);
  } else {
    Source::fill(a, group);
  }
}
template <class Source>
ADZE_INLINE void multiply_tile(const MatmulArgs& a, int group, Tile tile, V* result) {
  if (a.packed != nullptr) {
    Source::stream(a, group, tile, result);
  } else {
    Source::multiply(a, tile, result);
  }
}

template <class Source>
void run_matmul(const MatmulArgs& a, int group_begin, int group_end) {
  V result[kMaxTile];
  for (int group = group_begin; group < group_end; ++group) {
    begin_group<Source>(a, group);
    for (int i = 0; i < tile_count(a.tokens, a.max_tile); ++i) {
      const Tile tile = tile_at(i, a.tokens, a.max_tile);
      multiply_tile<Source>(a, group, tile, result);
      for (int t = 0; t < tile.count; ++t) write_group(a, group, tile.first + t, with_bias(a, group, result[t]));
    }
  }
}

inline V gated(GatedActivation act, V gate, V up) {
  switch (act) {
    case GatedActivation::silu: return mul(silu(gate), up);
    case GatedActivation::gelu_tanh: return mul(gelu_tanh(gate), up);
    case GatedActivation::swiglu_oai: return swiglu_oai(gate, up);
  }
  __builtin_unreachable();
}

void gate_row(float* gate_to_out, const float* up, GatedActivation act, int n) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    store_n(gate_to_out + i, gated(act, load_n(gate_to_out + i, m), load_n(up + i, m)), m);
  }
}

template <class Source>
void run_gated(const MatmulArgs& gate, const MatmulArgs& up, GatedActivation act, int group_begin, int group_end) {
  V g[kMaxTile], u[kMaxTile];
  for (int group = group_begin; group < group_end; ++group) {
    begin_group<Source>(gate, group);
    begin_group<Source>(up, group);
    for (int i = 0; i < tile_count(gate.tokens, gate.max_tile); ++i) {
      const Tile tile = tile_at(i, gate.tokens, gate.max_tile);
      multiply_tile<Source>(gate, group, tile, g);
      multiply_tile<Source>(up, group, tile, u);
      for (int t = 0; t < tile.count; ++t) {
        write_group(gate, group, tile.first + t, gated(act, with_bias(gate, group, g[t]), with_bias(up, group, u[t])));
      }
    }
  }
}

template <class Source>
std::size_t panel_bytes(int k, std::size_t row_stride) {
  return Source::panels(k) + tail_bytes(row_stride);
}

template <class F>
constexpr MatmulKernel int8_kernel(const char* name) {
  return {name,
          run_matmul<Int8Source<F>>,
          run_gated<Int8Source<F>>,
          panel_bytes<Int8Source<F>>,
          Int8Source<F>::packed_size,
          pack_codes<F>,
          ClassOf<F>::kElements};
}
template <class F>
constexpr MatmulKernel float_kernel(const char* name) {
  using Source = FloatSource<F>;
  MatmulKernel kernel{name, run_matmul<Source>, run_gated<Source>, panel_bytes<Source>, Source::packed_size, nullptr,
                      0};
  if constexpr (Source::kCanPack) kernel.pack = pack_floats<F>;
  return kernel;
}
