// Matrix products on panels. The order of every reduction is fixed per weight type and the same for one row and for
// many, for weights that come straight from the file and for those that passed through a panel in memory:
//
//   blocks of 32   acc = fma(d * dx, float(sum q x), acc), then acc = fma(m, dx * sum x, acc); block by block; codes
//                  with scales beside them are such blocks, also where more than 32 share a scale
//   blocks of 256  acc = fma(d * dx, float(sum_j scale_j sum q x), acc), then acc = fma(-(dmin * dx), float(sum_j min_j
//                  sum x), acc); block by block; everything inside a block is exact integer arithmetic
//   floats         four chains over k mod 4, acc_c = fma(w, x, acc_c), summed as (0 + 1) + (2 + 3)
//
// Up to kDirectTokens rows of activations, a weight block is unpacked in registers and used at once (the file is read
// once, as a stream of 16 rows); beyond, a group's panel is kept in cache and walked once per tile of rows.

template <int N>
struct Int {
  static constexpr int value = N;
};
constexpr int kDirectTile = kMaxTile < kDirectTokens ? kMaxTile : kDirectTokens;

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
inline I dot4(I acc, I q, std::int32_t x) {
  if constexpr (Signed) {
    return dot4_signed(acc, q, x);
  } else {
    return dot4_small(acc, q, x);
  }
}

// --- one block times N rows of activations
// -----------------------------------------------------------------------------

template <class F, int N>
ADZE_INLINE void multiply_block(const Panel32& p, const QuantisedRows& x, int block, V* acc) {
  constexpr std::int32_t offset = (F::kSigned ? kSignedBias : 0) + F::kOffset;
  const std::int8_t* quants = x.quants + static_cast<std::size_t>(block) * (32 * N);
  const std::size_t at = static_cast<std::size_t>(block) * N;
  I dot[N];
  for (int t = 0; t < N; ++t) dot[t] = splat_i(offset == 0 ? 0 : -offset * x.sums[at + static_cast<std::size_t>(t)]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
#pragma GCC unroll 12
    for (int t = 0; t < N; ++t) dot[t] = dot4<F::kSigned>(dot[t], p.q[i], dword_at(quants, i * N + t));
  }
#pragma GCC unroll 12
  for (int t = 0; t < N; ++t) {
    acc[t] = fma(mul(p.d, splat(x.scales[at + static_cast<std::size_t>(t)])), to_float(dot[t]), acc[t]);
    if constexpr (F::kHasMin) acc[t] = fma(p.m, splat(x.scaled_sums[at + static_cast<std::size_t>(t)]), acc[t]);
  }
}

template <class F, int N>
inline void multiply_block(const Panel256<F::kSub>& p, const QuantisedRows& x, int block, V* acc) {
  constexpr std::int32_t offset = (F::kSigned ? kSignedBias : 0) + F::kOffset;
  constexpr int dwords = 64 / F::kSub;  // of a sub-block
  const std::int8_t* quants = x.quants + static_cast<std::size_t>(block) * (256 * N);
  const std::int32_t* sums = x.sums + static_cast<std::size_t>(block) * (16 * N);
  I total[N], minimum[N];
  for (int t = 0; t < N; ++t) total[t] = minimum[t] = splat_i(0);
  for (int j = 0; j < F::kSub; ++j) {
    I dot[N];
#pragma GCC unroll 12
    for (int t = 0; t < N; ++t) {
      const std::int32_t sum = F::kSub == 16 ? sums[j * N + t] : sums[2 * j * N + t] + sums[(2 * j + 1) * N + t];
      dot[t] = splat_i(offset == 0 ? 0 : -offset * sum);
      if constexpr (F::kHasMin) minimum[t] = add_i(minimum[t], mul_i(p.min[j], splat_i(sum)));
    }
#pragma GCC unroll 8
    for (int i = 0; i < dwords; ++i) {
#pragma GCC unroll 12
      for (int t = 0; t < N; ++t) {
        dot[t] = dot4<F::kSigned>(dot[t], p.q[j * dwords + i], dword_at(quants, (j * dwords + i) * N + t));
      }
    }
#pragma GCC unroll 12
    for (int t = 0; t < N; ++t) total[t] = add_i(total[t], mul_i(p.scale[j], dot[t]));
  }
  for (int t = 0; t < N; ++t) {
    const V dx = splat(x.scales[static_cast<std::size_t>(block * N + t)]);
    acc[t] = fma(mul(p.d, dx), to_float(total[t]), acc[t]);
    if constexpr (F::kHasMin) acc[t] = fma(sub(zero(), mul(p.dmin, dx)), to_float(minimum[t]), acc[t]);
  }
}

template <class F>
struct PanelOf {
  using Type = Panel32;
  static constexpr int kElements = 32;
};
template <class F>
  requires(F::kSub > 0)
struct PanelOf<F> {
  using Type = Panel256<F::kSub>;
  static constexpr int kElements = 256;
};

// --- groups of 16 output rows
// ---------------------------------------------------------------------------------------------

// Scratch after the panels: the last group's rows when there are fewer than 16, completed with zeros.
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

template <class F>
constexpr bool kIsGrouped = requires { F::kGrouped; };

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

inline QuantisedRows tile_rows(const QuantisedRows& x, int first_row, int k, int block, int sums_block) {
  const auto r = static_cast<std::size_t>(first_row);
  return {x.quants + r * static_cast<std::size_t>(k), x.scales + r * static_cast<std::size_t>(k / block),
          x.scaled_sums + r * static_cast<std::size_t>(k / block),
          x.sums + r * static_cast<std::size_t>(k / sums_block)};
}

// Block `block` of a group as a panel; `scales` is where the scales of codes are.
template <class F>
ADZE_INLINE void unpack_block(const MatmulArgs& a, const std::byte* rows, int block, const std::byte* scales,
                              typename PanelOf<F>::Type& p) {
  F::unpack(rows + static_cast<std::size_t>(block) * F::kBytes, a.row_stride, p);
  if constexpr (kIsGrouped<F>) {
    const ScalePanels panels = loaded_scales(a, scales);
    p.d = panels.scale(block);
    if constexpr (F::kHasMin) p.m = panels.bias(block);
  }
}

// Streams a group's blocks through registers for all (few) rows of activations; result[t] is lane = output row.
template <class F>
inline void stream_group(const MatmulArgs& a, const std::byte* rows, const std::byte* scales, V* result) {
  using Panel = typename PanelOf<F>::Type;
  const int blocks = a.k / PanelOf<F>::kElements;
  with_count<kDirectTile>(a.tokens, [&](auto n) {
    constexpr int N = decltype(n)::value;
    V acc[N];
    for (V& v : acc) v = zero();
    const char* next = reinterpret_cast<const char*>(rows + kGroupRows * a.row_stride);
    for (int b = 0; b < blocks; ++b) {
      // The 16 rows of a group are too short for the hardware to see streams in them: fetch the next group's bytes, in
      // order, while this one is multiplied (decode of a 576-wide model: 1.6 times as fast).
      for (int line = 0; line < kGroupRows * F::kBytes; line += 64) __builtin_prefetch(next + line);
      next += kGroupRows * F::kBytes;
      Panel p;
      unpack_block<F>(a, rows, b, scales, p);
      multiply_block<F, N>(p, a.quantised, b, acc);
    }
    for (int t = 0; t < N; ++t) result[t] = acc[t];
  });
}

template <class F>
inline void multiply_panel(const MatmulArgs& a, const typename PanelOf<F>::Type* panel, Tile tile, V* result) {
  constexpr int elements = PanelOf<F>::kElements;
  const QuantisedRows x = tile_rows(a.quantised, tile.first, a.k, elements, elements == 32 ? 32 : 16);
  const int blocks = a.k / elements;
  with_count(tile.count, [&](auto n) {
    constexpr int N = decltype(n)::value;
    V acc[N];
    for (V& v : acc) v = zero();
    for (int b = 0; b < blocks; ++b) multiply_block<F, N>(panel[b], x, b, acc);
    for (int t = 0; t < N; ++t) result[t] = acc[t];
  });
}

template <class F>
struct Int8Source {
  using Panel = typename PanelOf<F>::Type;
  static bool direct(const MatmulArgs& a) { return a.tokens <= kDirectTile; }
  static std::size_t blocks(int k) { return static_cast<std::size_t>(k / PanelOf<F>::kElements) * sizeof(Panel); }
  static std::size_t panels(int k) { return blocks(k) + (kIsGrouped<F> ? scale_panels(k) : 0); }
  static const std::byte* rows(const MatmulArgs& a, int group) {
    std::byte* const tail = a.panel + panels(a.k);
    if constexpr (kIsGrouped<F>) load_scales(a, group, a.panel + blocks(a.k), tail);
    return group_rows(a, a.weights, a.row_stride, group, tail);
  }
  static void stream(const MatmulArgs& a, const std::byte* rows, V* result) {
    stream_group<F>(a, rows, a.panel + blocks(a.k), result);
  }
  static void fill(const MatmulArgs& a, const std::byte* rows) {
    auto* panel = reinterpret_cast<Panel*>(a.panel);
    const int count = a.k / PanelOf<F>::kElements;
    for (int b = 0; b < count; ++b) unpack_block<F>(a, rows, b, a.panel + blocks(a.k), panel[b]);
  }
  static void multiply(const MatmulArgs& a, Tile tile, V* result) {
    multiply_panel<F>(a, reinterpret_cast<const Panel*>(a.panel), tile, result);
  }
};

// --- floats
// -----------------------------------------------------------------------------------------------------------------

constexpr int kFloatTile = kMaxTile < 6 ? kMaxTile : 6;

template <int N>
inline void multiply_floats(const PanelFloat* panel, int blocks, const float* x, std::size_t ld, V* result) {
  V acc[N][4];
  for (auto& row : acc) {
    for (V& v : row) v = zero();
  }
  for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
#pragma GCC unroll 6
      for (int t = 0; t < N; ++t) {
        const float value = x[static_cast<std::size_t>(t) * ld + static_cast<std::size_t>(16 * b + i)];
        acc[t][i & 3] = fma(panel[b].w[i], splat(value), acc[t][i & 3]);
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
    I bytes = q[i / 4];
    for (int j = 0; j < 4; ++j, bytes = shift_right<8>(bytes)) {
      const V value = mul(scale, to_float(sub_i(and_i(bytes, splat_i(255)), splat_i(F::kBase))));
      panel[i / 16].w[i % 16 + j] = F::kHasMin ? add(value, scales.bias(block)) : value;
    }
  }
}

// Every float product passes through a panel: 64 bytes a weight of 16 rows, so one row of activations costs as much
// unpacking as many. F is void for block types, which are dequantised row by row first.
template <class F>
struct FloatSource {
  static bool direct(const MatmulArgs&) { return false; }
  static std::size_t blocks(int k) { return static_cast<std::size_t>((k + 15) / 16) * sizeof(PanelFloat); }
  static std::size_t panels(int k) { return blocks(k) + (kIsGrouped<F> ? scale_panels(k) : 0); }
  static const std::byte* rows(const MatmulArgs& a, int group) {
    std::byte* const tail = a.panel + panels(a.k);
    if constexpr (kIsGrouped<F>) load_scales(a, group, a.panel + blocks(a.k), tail);
    return group_rows(a, a.weights, a.row_stride, group, tail);
  }
  static void stream(const MatmulArgs&, const std::byte*, V*) {}
  static void fill(const MatmulArgs& a, const std::byte* rows) {
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
    const auto* panel = reinterpret_cast<const PanelFloat*>(a.panel);
    const int blocks = (a.k + 15) / 16;
    for (int t = 0; t < tile.count;) {
      const int n = tile.count - t < kFloatTile ? tile.count - t : kFloatTile;
      const float* x = a.floats + static_cast<std::size_t>(tile.first + t) * a.ld_floats;
      with_count<kFloatTile>(
          n, [&](auto count) { multiply_floats<decltype(count)::value>(panel, blocks, x, a.ld_floats, result + t); });
      t += n;
    }
  }
};

// --- the kernels
// ---------------------------------------------------------------------------------------------------------------

template <class Source>
void run_matmul(const MatmulArgs& a, int group_begin, int group_end) {
  V result[kMaxTile];
  const bool direct = Source::direct(a);
  for (int group = group_begin; group < group_end; ++group) {
    const std::byte* rows = Source::rows(a, group);
    if (direct) {
      Source::stream(a, rows, result);
      for (int t = 0; t < a.tokens; ++t) write_group(a, group, t, with_bias(a, group, result[t]));
      continue;
    }
    Source::fill(a, rows);
    for (int i = 0; i < tile_count(a.tokens, kMaxTile); ++i) {
      const Tile tile = tile_at(i, a.tokens, kMaxTile);
      Source::multiply(a, tile, result);
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
  const bool direct = Source::direct(gate);
  const auto write = [&](int group, int token, int t) {
    const V y = gated(act, with_bias(gate, group, g[t]), with_bias(up, group, u[t]));
    write_group(gate, group, token, y);
  };
  for (int group = group_begin; group < group_end; ++group) {
    const std::byte* gate_rows = Source::rows(gate, group);
    const std::byte* up_rows = Source::rows(up, group);
    if (direct) {
      Source::stream(gate, gate_rows, g);
      Source::stream(up, up_rows, u);
      for (int t = 0; t < gate.tokens; ++t) write(group, t, t);
      continue;
    }
    Source::fill(gate, gate_rows);
    Source::fill(up, up_rows);
    for (int i = 0; i < tile_count(gate.tokens, kMaxTile); ++i) {
      const Tile tile = tile_at(i, gate.tokens, kMaxTile);
      Source::multiply(gate, tile, g);
      Source::multiply(up, tile, u);
      for (int t = 0; t < tile.count; ++t) write(group, tile.first + t, t);
    }
  }
}

template <class Source>
std::size_t panel_bytes(int k, std::size_t row_stride) {
  return Source::panels(k) + tail_bytes(row_stride);
}

template <class F>
constexpr MatmulKernel int8_kernel(const char* name) {
  return {name, run_matmul<Int8Source<F>>, run_gated<Int8Source<F>>, panel_bytes<Int8Source<F>>, PanelOf<F>::kElements};
}
template <class F>
constexpr MatmulKernel float_kernel(const char* name) {
  return {name, run_matmul<FloatSource<F>>, run_gated<FloatSource<F>>, panel_bytes<FloatSource<F>>, 0};
}
