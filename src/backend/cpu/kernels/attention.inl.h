// Attention over one partition of the KV cache, and the merge of partitions in order. Keys lie 16 positions side by
// side, so that a score is one lane and exp runs on 16 of them; values lie position by position, so that an output is
// one lane per dimension. What a query gets depends on its own row only: scores sum over the head in order, p * v over
// positions in order, masked positions count as exactly 0.
//
// The walk is page by page: all queries take a page's keys while it is in the first cache, a few of them at a time with
// all their sums in registers; the same again with values. Many queries (a prompt) share one page unpacked to float32;
// few (a token's query heads) turn into floats what they read.

constexpr int kQ8Block = 32;          // values of a head that share a scale in a q8_0 cache
constexpr int kMaxPaddedHead = 1024;  // limits::kMaxHeadSize

inline int q8_blocks(int head_size) { return (head_size + kQ8Block - 1) / kQ8Block; }

// --- reading the cache: keys and values of one KV head in one page, one pair of readers per format
// --------------------

inline V load_stored(const float* p) { return load(p); }
inline V load_stored(const std::uint16_t* p) { return load_f16(p); }

// A reader's kAhead: bytes of 16 values that are asked for ahead of time, 0 where they are near anyway.
template <class T, int Ahead = 16 * sizeof(T)>
struct PlainKeys {
  static constexpr int kAhead = Ahead;
  const T* data;
  int head_size;
  PlainKeys(const std::byte* page_head, int head) : data(reinterpret_cast<const T*>(page_head)), head_size(head) {}
  // 16 positions of a block at dimension d.
  V at(int block, int d) const { return load_stored(data + (block * head_size + d) * 16); }
};
template <class T, int Ahead = 16 * sizeof(T)>
struct PlainValues {
  static constexpr int kAhead = Ahead;
  const T* data;
  int padded;
  PlainValues(const std::byte* page_head, int head)
      : data(reinterpret_cast<const T*>(page_head)), padded(padded16(head)) {}
  // 16 dimensions from d on of the position in `slot`.
  V at(int slot, int d) const { return load_stored(data + slot * padded + d); }
};
// Quants as in the other formats but one byte each, then the page's scales in float16: keys [page / 16][blocks][16],
// values [page][blocks].
struct Q8Keys {
  static constexpr int kAhead = 16;
  const std::int8_t* quants;
  const std::uint16_t* scales;
  int head_size;
  Q8Keys(const std::byte* page_head, int head)
      : quants(reinterpret_cast<const std::int8_t*>(page_head)),
        scales(reinterpret_cast<const std::uint16_t*>(page_head + kPageTokens * head)),
        head_size(head) {}
  V at(int block, int d) const {
    const V scale = load_f16(scales + (block * q8_blocks(head_size) + d / kQ8Block) * 16);
    return mul(to_float(load_i8(quants + (block * head_size + d) * 16)), scale);
  }
};
struct Q8Values {
  static constexpr int kAhead = 16;
  const std::int8_t* quants;
  int padded, blocks;
  float scales[kPageTokens * kMaxPaddedHead / kQ8Block];
  Q8Values(const std::byte* page_head, int head)
      : quants(reinterpret_cast<const std::int8_t*>(page_head)), padded(padded16(head)), blocks(q8_blocks(head)) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(page_head + kPageTokens * padded);
    for (int i = 0; i < kPageTokens * blocks; i += 16) store(scales + i, load_f16(halves + i));
  }
  V at(int slot, int d) const {
    return mul(to_float(load_i8(quants + slot * padded + d)), splat(scales[slot * blocks + d / kQ8Block]));
  }
};

// --- writing it
// ----------------------------------------------------------------------------------------------------------

inline void to_halves(const float* x, int n, std::uint16_t* out) {  // out padded to 16
  for (int i = 0; i < n; i += 16) store_f16(out + i, load_n(x + i, n - i < 16 ? n - i : 16));
}

// Rounds a head to q8: quants [padded16], scales as float16 bits.
inline void to_q8(const float* x, int n, std::int8_t* quants, std::uint16_t* scales) {
  for (int b = 0; b < q8_blocks(n); ++b) {
    const int from = b * kQ8Block, left = n - from < kQ8Block ? n - from : kQ8Block;
    const V x0 = load_n(x + from, left < 16 ? left : 16);
    const V x1 = left > 16 ? load_n(x + from + 16, left - 16) : zero();
    const float largest = reduce_max(max(abs(x0), abs(x1)));
    std::uint16_t h[16];
    store_f16(h, splat(largest / 127.0f));
    scales[b] = h[0];
    const V inverse = splat(largest != 0.0f ? 127.0f / largest : 0.0f);
    store_i8(quants + from, to_quant(mul(x0, inverse)));
    if (left > 16) store_i8(quants + from + 16, to_quant(mul(x1, inverse)));
  }
}

void append_key(KvFormat format, const float* k, int head_size, int slot, std::byte* page_head) {
  const int first = (slot / 16 * head_size) * 16 + slot % 16;  // the block's dimension 0, this position's lane
  switch (format) {
    case KvFormat::f32: {
      auto* out = reinterpret_cast<float*>(page_head) + first;
      for (int d = 0; d < head_size; ++d) out[d * 16] = k[d];
      return;
    }
    case KvFormat::f16: {
      std::uint16_t h[kMaxPaddedHead];
      to_halves(k, head_size, h);
      auto* out = reinterpret_cast<std::uint16_t*>(page_head) + first;
      for (int d = 0; d < head_size; ++d) out[d * 16] = h[d];
      return;
    }
    case KvFormat::q8_0: {
      std::int8_t q[kMaxPaddedHead];
      std::uint16_t scales[kMaxPaddedHead / kQ8Block];
      to_q8(k, head_size, q, scales);
      auto* out = reinterpret_cast<std::int8_t*>(page_head) + first;
      for (int d = 0; d < head_size; ++d) out[d * 16] = q[d];
      auto* out_scales = reinterpret_cast<std::uint16_t*>(page_head + kPageTokens * head_size);
      const int blocks = q8_blocks(head_size);
      for (int b = 0; b < blocks; ++b) out_scales[(slot / 16 * blocks + b) * 16 + slot % 16] = scales[b];
      return;
    }
  }
}

void append_value(KvFormat format, const float* v, int head_size, int slot, std::byte* page_head) {
  const int padded = padded16(head_size);
  switch (format) {
    case KvFormat::f32: {
      auto* out = reinterpret_cast<float*>(page_head) + slot * padded;
      for (int d = 0; d < head_size; d += 16) store(out + d, load_n(v + d, head_size - d < 16 ? head_size - d : 16));
      return;
    }
    case KvFormat::f16: {
      to_halves(v, head_size, reinterpret_cast<std::uint16_t*>(page_head) + slot * padded);
      return;
    }
    case KvFormat::q8_0: {
      std::int8_t q[kMaxPaddedHead];
      std::uint16_t scales[kMaxPaddedHead / kQ8Block];
      to_q8(v, head_size, q, scales);
      for (int d = head_size; d < padded; ++d) q[d] = 0;
      __builtin_memcpy(page_head + slot * padded, q, static_cast<std::size_t>(padded));
      const int blocks = q8_blocks(head_size);
      __builtin_memcpy(page_head + kPageTokens * padded + 2 * slot * blocks, scales,
                       static_cast<std::size_t>(2 * blocks));
      return;
    }
  }
}

// --- one partition --------------------------------------------------------------------------------------------------

// Sums that stay in registers: up to kTileQueries queries by kTileVectors vectors of 16 positions or dimensions.
constexpr int kTileQueries = kMaxTile > 6 ? 6 : 3;
constexpr int kTileVectors = kMaxTile > 6 ? 4 : 2;
constexpr int kPageBlocks = kPageTokens / 16;
// Up to here each tile makes floats of what it reads: 8 queries of heads of 128 take 0.75 of the time that they take
// with a page unpacked first, which is 32 KiB.
constexpr int kFewQueries = 2 * kTileQueries;

// Queries [first, first + count) and the positions of the partition that any of them sees: [lo, hi], none if lo > hi.
struct QueryTile {
  int first, count, lo, hi;
};

inline QueryTile tile_of_queries(const AttendArgs& a, int first, int count) {
  QueryTile tile{first, count, a.count, -1};
  for (int q = first; q < first + count; ++q) {
    const int lo = a.first[q] > a.begin ? a.first[q] - a.begin : 0;
    const int hi = a.last[q] - a.begin < a.count - 1 ? a.last[q] - a.begin : a.count - 1;
    if (lo > hi) continue;
    tile.lo = lo < tile.lo ? lo : tile.lo;
    tile.hi = hi > tile.hi ? hi : tile.hi;
  }
  return tile;
}

inline QueryTile query_tile(const AttendArgs& a, int index) {
  const Tile part = tile_at(index, a.queries, kTileQueries);
  return tile_of_queries(a, part.first, part.count);
}

// Calls f(Int<N>{}, tile) for near-equal tiles of all queries.
template <class F>
ADZE_INLINE void for_query_tiles(const AttendArgs& a, F f) {
  for (int i = 0; i < tile_count(a.queries, kTileQueries); ++i) {
    const QueryTile tile = query_tile(a, i);
    with_count<kTileQueries>(tile.count, [&](auto n) { f(n, tile); });
  }
}

// Asks for the 16 C values of the page read next whose turn comes when those at `index` are read now. A page of a head
// is 8 KiB among megabytes: the processor's own prefetch has hardly begun when it ends, and a thread got 7 GB/s. Into
// the second cache: where weights and KV together outgrow the last one, that is 1.12 times as fast as into the first.
template <class Reader, int C>
ADZE_INLINE void prefetch(const std::byte* ahead, int index) {
#pragma GCC unroll 4
  for (int i = 0; i < C * Reader::kAhead; i += 64) __builtin_prefetch(ahead + index * Reader::kAhead + i, 0, 2);
}

// scores[q][position] of kTileVectors blocks of 16 positions of a page; `from` is the page's first position.
template <int N, class Keys>
ADZE_INLINE void score_blocks(const AttendArgs& a, const QueryTile& tile, const Keys& keys, int block, int from,
                              const std::byte* ahead) {
  V sums[N][kTileVectors];
  for (auto& row : sums) {
    for (V& v : row) v = zero();
  }
  const float* query[N];
  for (int q = 0; q < N; ++q) query[q] = a.query[tile.first + q];
  for (int d = 0; d < a.head_size; ++d) {
    prefetch<Keys, kTileVectors>(ahead, block * a.head_size + d * kTileVectors);
    V k[kTileVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kTileVectors; ++c) k[c] = keys.at(block + c, d);
#pragma GCC unroll 8
    for (int q = 0; q < N; ++q) {
      const V x = splat(query[q][d]);
#pragma GCC unroll 4
      for (int c = 0; c < kTileVectors; ++c) sums[q][c] = fma(k[c], x, sums[q][c]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < N; ++q) {
    float* out = a.scores + (tile.first + q) * kPartition + from + 16 * block;
#pragma GCC unroll 4
    for (int c = 0; c < kTileVectors; ++c) store(out + 16 * c, sums[q][c]);
  }
}

// A page's scores as far as a tile sees it, in whole blocks; positions that no query sees are masked later.
template <class Keys>
inline void score_page(const AttendArgs& a, const std::byte* page_head, int from, const std::byte* ahead) {
  const Keys keys(page_head, a.head_size);
  for_query_tiles(a, [&](auto n, const QueryTile& tile) {
    for (int block = 0; block < kPageBlocks; block += kTileVectors) {
      const int begin = from + 16 * block, end = begin + 16 * kTileVectors;
      if (tile.lo < end && begin <= tile.hi) score_blocks<decltype(n)::value>(a, tile, keys, block, from, ahead);
    }
  });
}

// Scale, cap and mask the scores of one query of a tile, then p = exp(s - max). Positions of the tile that the query
// does not see become exactly 0.
inline void soften(const AttendArgs& a, int query, const QueryTile& tile) {
  float* s = a.scores + query * kPartition;
  const QueryTile own = tile_of_queries(a, query, 1);
  const float minus_infinity = -__builtin_inff();
  constexpr float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const V lanes = load(kLanes);
  V largest = splat(minus_infinity);
  const int begin = tile.lo / 16 * 16;
  for (int i = begin; i <= tile.hi; i += 16) {
    V v = mul(load(s + i), splat(a.scale));
    if (a.softcap != 0.0f) v = mul(tanh(div(v, splat(a.softcap))), splat(a.softcap));
    if (i < own.lo || i + 15 > own.hi) {
      v = where_ge(lanes, splat(static_cast<float>(own.lo - i)), v, splat(minus_infinity));
      v = where_ge(splat(static_cast<float>(own.hi - i)), lanes, v, splat(minus_infinity));
    }
    store(s + i, v);
    largest = max(v, largest);
  }
  const bool sees = own.lo <= own.hi;
  const float maximum = sees ? reduce_max(largest) : minus_infinity;
  V sum = zero();
  for (int i = begin; i <= tile.hi; i += 16) {
    const V p = sees ? exp_of_negative(sub(load(s + i), splat(maximum))) : zero();
    store(s + i, p);
    sum = add(sum, p);
  }
  a.maximum[query] = maximum;
  a.denominator[query] = reduce_add(sum);
  for (int d = 0; d < a.head_size; d += 16) store(a.out[query] + d, zero());
}

// out[q] dimensions [d, d + 16 * C) += p * v of the slots [lo, hi] of a page; `from` is the page's first position.
template <int N, int C, class Values>
ADZE_INLINE void weigh_columns(const AttendArgs& a, const QueryTile& tile, const Values& values, int from, int lo,
                               int hi, int d, const std::byte* ahead) {
  V sums[N][C];
  const float* p = a.scores + tile.first * kPartition + from;
#pragma GCC unroll 8
  for (int q = 0; q < N; ++q) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) sums[q][c] = load(a.out[tile.first + q] + d + 16 * c);
  }
  for (int slot = lo; slot <= hi; ++slot) {
    prefetch<Values, C>(ahead, (slot * values.padded + d) / 16);
    V v[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) v[c] = values.at(slot, d + 16 * c);
#pragma GCC unroll 8
    for (int q = 0; q < N; ++q) {
      const V x = splat(p[q * kPartition + slot]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sums[q][c] = fma(x, v[c], sums[q][c]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < N; ++q) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) store(a.out[tile.first + q] + d + 16 * c, sums[q][c]);
  }
}

template <class Values>
inline void weigh_page(const AttendArgs& a, const std::byte* page_head, int from, const std::byte* ahead) {
  const Values values(page_head, a.head_size);
  const int padded = padded16(a.head_size);
  for_query_tiles(a, [&](auto n, const QueryTile& tile) {
    constexpr int N = decltype(n)::value;
    const int lo = tile.lo > from ? tile.lo - from : 0;
    const int hi = tile.hi - from < kPageTokens - 1 ? tile.hi - from : kPageTokens - 1;
    if (lo > hi) return;
    int d = 0;
    for (; d + 16 * kTileVectors <= padded; d += 16 * kTileVectors) {
      weigh_columns<N, kTileVectors>(a, tile, values, from, lo, hi, d, ahead);
    }
    for (; d < padded; d += 16) weigh_columns<N, 1>(a, tile, values, from, lo, hi, d, ahead);
  });
}

// All keys of a page, or all values of its first `slots`, as they lie in a float32 page.
template <class Keys>
inline void unpack_keys(const AttendArgs& a, const std::byte* page_head, const std::byte* ahead) {
  const Keys keys(page_head, a.head_size);
  for (int block = 0; block < kPageBlocks; ++block) {
    for (int d = 0; d < a.head_size; ++d) {
      const int at = block * a.head_size + d;
      prefetch<Keys, 1>(ahead, at);
      store(a.unpacked + at * 16, keys.at(block, d));
    }
  }
}
template <class Values>
inline void unpack_values(const AttendArgs& a, const std::byte* page_head, int slots, const std::byte* ahead) {
  const Values values(page_head, a.head_size);
  const int padded = padded16(a.head_size);
  for (int slot = 0; slot < slots; ++slot) {
    for (int d = 0; d < padded; d += 16) {
      prefetch<Values, 1>(ahead, (slot * padded + d) / 16);
      store(a.unpacked + slot * padded + d, values.at(slot, d));
    }
  }
}

template <class Keys, class Values>
inline void attend_format(const AttendArgs& a) {
  using NearKeys = PlainKeys<float, 0>;
  using NearValues = PlainValues<float, 0>;
  const bool unpack = a.queries > kFewQueries;
  const auto* unpacked = reinterpret_cast<const std::byte*>(a.unpacked);
  const int pages = (a.count + kPageTokens - 1) / kPageTokens;
  for (int i = a.first_page; i < pages; ++i) {
    const std::byte *page = a.key_pages[i], *ahead = i + 1 < pages ? a.key_pages[i + 1] : a.value_pages[a.first_page];
    if (unpack) {
      unpack_keys<Keys>(a, page, ahead);
      score_page<NearKeys>(a, unpacked, i * kPageTokens, unpacked);
    } else {
      score_page<Keys>(a, page, i * kPageTokens, ahead);
    }
  }
  for (int i = 0; i < tile_count(a.queries, kTileQueries); ++i) {
    const QueryTile tile = query_tile(a, i);
    for (int q = tile.first; q < tile.first + tile.count; ++q) soften(a, q, tile);
  }
  for (int i = a.first_page; i < pages; ++i) {
    const std::byte *page = a.value_pages[i], *ahead = i + 1 < pages ? a.value_pages[i + 1] : a.next_keys;
    if (unpack) {
      const int left = a.count - i * kPageTokens;
      unpack_values<Values>(a, page, left < kPageTokens ? left : kPageTokens, ahead);
      weigh_page<NearValues>(a, unpacked, i * kPageTokens, unpacked);
    } else {
      weigh_page<Values>(a, page, i * kPageTokens, ahead);
    }
  }
}

void attend(const AttendArgs& a) {
  switch (a.format) {
    case KvFormat::f32: attend_format<PlainKeys<float>, PlainValues<float>>(a); return;
    case KvFormat::f16: attend_format<PlainKeys<std::uint16_t>, PlainValues<std::uint16_t>>(a); return;
    case KvFormat::q8_0: attend_format<Q8Keys, Q8Values>(a); return;
  }
}

void merge(float* out, float* maximum, float* denominator, const float* part, float part_maximum,
           float part_denominator, int head_size) {
  const float larger = *maximum > part_maximum ? *maximum : part_maximum;
  if (larger == -__builtin_inff()) return;  // neither has seen a position
  float factors[16] = {*maximum - larger, part_maximum - larger};
  store(factors, exp(load(factors)));
  const V old_factor = splat(factors[0]), part_factor = splat(factors[1]);
  for (int d = 0; d < head_size; d += 16) {
    store(out + d, fma(load(part + d), part_factor, mul(load(out + d), old_factor)));
  }
  *denominator = __builtin_fmaf(part_denominator, factors[1], *denominator * factors[0]);
  *maximum = larger;
}

void finish(float* out, float maximum, float denominator, bool has_sink, float sink, int head_size) {
  float scale = 1.0f;
  if (has_sink) {  // the sink takes part in the maximum as well
    const float larger = maximum > sink ? maximum : sink;
    float factors[16] = {maximum - larger, sink - larger};
    store(factors, exp(load(factors)));
    scale = factors[0];
    denominator = __builtin_fmaf(denominator, factors[0], factors[1]);
  }
  const V factor = splat(scale / denominator);
  for (int d = 0; d < head_size; d += 16) store(out + d, mul(load(out + d), factor));
}
