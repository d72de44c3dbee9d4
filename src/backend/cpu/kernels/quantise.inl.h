// Rounds a row of activations to int8: the two schemes of ggml's CPU kernels, so that results can be held against its
// (oracles: expected-int8act). Ties go to even.

inline float f16_rounded(float x) {
  std::uint16_t h[16];
  store_f16(h, splat(x));
  float f[16];
  store(f, load_f16(h));
  return f[0];
}

inline V absolute_maximum(const float* x, int n) {
  V m = abs(load(x));
  for (int i = 16; i < n; i += 16) m = max(m, abs(load(x + i)));
  return m;
}

inline std::int32_t reduce_add_i(I a) {
  std::int32_t t[16], sum = 0;
  store_i(t, a);
  for (const std::int32_t v : t) sum += v;
  return sum;
}

// The nearest of -127..127. The bounds bite only where a value is NaN, which then shows in the block's scale.
inline I to_quant(V x) { return to_int(min(max(x, splat(-127.0f)), splat(127.0f))); }

// Where a row of a tile starts and how far its consecutive pieces lie apart.
struct TileSlot {
  std::size_t base, step;  // in pieces: piece i is at base + i * step
};
inline TileSlot tile_slot(int row, Tile tile, int pieces_per_row) {
  return {static_cast<std::size_t>(tile.first) * static_cast<std::size_t>(pieces_per_row) +
              static_cast<std::size_t>(row - tile.first),
          static_cast<std::size_t>(tile.count)};
}

inline void scatter_quants(std::int8_t* quants, TileSlot slot, int first_dword, I q) {
  std::int8_t bytes[16];
  store_i8(bytes, q);
  for (int i = 0; i < 4; ++i) {
    const std::size_t dword = slot.base + static_cast<std::size_t>(first_dword + i) * slot.step;
    __builtin_memcpy(quants + 4 * dword, bytes + 4 * i, 4);
  }
}

inline void quantise32_row(const float* x, int n, const QuantisedRows& out, int row, Tile tile) {
  const TileSlot dwords = tile_slot(row, tile, n / 4), blocks = tile_slot(row, tile, n / 32);
  for (int b = 0; b < n / 32; ++b, x += 32) {
    const float largest = reduce_max(absolute_maximum(x, 32));
    const float scale = f16_rounded(largest / 127.0f);
    const V inverse = splat(largest != 0.0f ? 127.0f / largest : 0.0f);
    const I q0 = to_quant(mul(load(x), inverse)), q1 = to_quant(mul(load(x + 16), inverse));
    scatter_quants(out.quants, dwords, 8 * b, q0);
    scatter_quants(out.quants, dwords, 8 * b + 4, q1);
    const std::int32_t sum = reduce_add_i(add_i(q0, q1));
    const std::size_t at = blocks.base + static_cast<std::size_t>(b) * blocks.step;
    out.scales[at] = scale;
    out.scaled_sums[at] = scale * static_cast<float>(sum);
    out.sums[at] = sum;
  }
}

inline void quantise256_row(const float* x, int n, const QuantisedRows& out, int row, Tile tile) {
  const TileSlot dwords = tile_slot(row, tile, n / 4), blocks = tile_slot(row, tile, n / 256);
  const TileSlot pairs = tile_slot(row, tile, n / 16);
  for (int b = 0; b < n / 256; ++b, x += 256) {
    const float largest = reduce_max(absolute_maximum(x, 256));
    const float factor = largest != 0.0f ? 127.0f / largest : 0.0f;
    // A subnormal block would give an infinite factor; its values are nothing beside any weight.
    const bool usable = factor <= 3.0e38f && largest == largest;
    const V inverse = splat(usable ? factor : 0.0f);
    std::int32_t sums[16];
    for (int i = 0; i < 16; ++i) {
      const I q = to_quant(mul(load(x + 16 * i), inverse));
      scatter_quants(out.quants, dwords, 64 * b + 4 * i, q);
      sums[i] = reduce_add_i(q);
    }
    const auto write_pair = [&](int at, std::int32_t first, std::int32_t second) {
      out.sums[pairs.base + static_cast<std::size_t>(16 * b + at) * pairs.step] = static_cast<std::int32_t>(
          (static_cast<std::uint32_t>(first) & 0xffffu) | static_cast<std::uint32_t>(second) << 16);
    };
    for (int i = 0; i < 8; ++i) write_pair(i, sums[2 * i], sums[2 * i + 1]);
    for (int i = 0; i < 4; ++i) write_pair(8 + i, sums[4 * i] + sums[4 * i + 1], sums[4 * i + 2] + sums[4 * i + 3]);
    out.scales[blocks.base + static_cast<std::size_t>(b) * blocks.step] = factor == 0.0f ? largest
                                                                          : usable       ? 1.0f / factor
                                                                                         : 0.0f * largest;
  }
}
