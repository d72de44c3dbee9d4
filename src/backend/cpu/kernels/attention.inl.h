// Attention over one partition of the KV cache, and the merge of partitions in order. Keys lie 16 positions side by
// side, so that a score is one lane and exp runs on 16 of them; values lie position by position, so that an output is
// one lane per dimension. What a query gets depends on its own row only: scores sum over the head in order, p * v over
// positions in order, masked positions count as exactly 0.

constexpr int kQ8Block = 32;  // values of a head that share a scale in a q8_0 cache

inline int q8_blocks(int head_size) { return (head_size + kQ8Block - 1) / kQ8Block; }

// --- reading the cache: one struct per format
// -------------------------------------------------------------------------

struct KvF32 {
  static V key(const std::byte* page_head, int head_size, int block, int d) {
    return load(reinterpret_cast<const float*>(page_head) + (block * head_size + d) * 16);
  }
  static V value(const std::byte* page_head, int head_size, int, int slot, int d) {
    return load(reinterpret_cast<const float*>(page_head) + slot * padded16(head_size) + d);
  }
};
struct KvF16 {
  static V key(const std::byte* page_head, int head_size, int block, int d) {
    return load_f16(reinterpret_cast<const std::uint16_t*>(page_head) + (block * head_size + d) * 16);
  }
  static V value(const std::byte* page_head, int head_size, int, int slot, int d) {
    return load_f16(reinterpret_cast<const std::uint16_t*>(page_head) + slot * padded16(head_size) + d);
  }
};
// Quants as in the other formats but one byte each, then the page's scales in float16: keys [page / 16][blocks][16],
// values [page][blocks].
struct KvQ8 {
  static V key(const std::byte* page_head, int head_size, int block, int d) {
    const auto* quants = reinterpret_cast<const std::int8_t*>(page_head);
    const auto* scales = reinterpret_cast<const std::uint16_t*>(page_head + kPageTokens * head_size);
    const V scale = load_f16(scales + (block * q8_blocks(head_size) + d / kQ8Block) * 16);
    return mul(to_float(load_i8(quants + (block * head_size + d) * 16)), scale);
  }
  static V value(const std::byte* page_head, int head_size, int, int slot, int d) {
    const int padded = padded16(head_size);
    const auto* quants = reinterpret_cast<const std::int8_t*>(page_head);
    const std::byte* scales = page_head + kPageTokens * padded;
    std::uint16_t h[16] = {};
    __builtin_memcpy(h, scales + 2 * (slot * q8_blocks(head_size) + d / kQ8Block), 2);
    float f[16];
    store(f, load_f16(h));
    return mul(to_float(load_i8(quants + slot * padded + d)), splat(f[0]));
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
      std::uint16_t h[1024];
      to_halves(k, head_size, h);
      auto* out = reinterpret_cast<std::uint16_t*>(page_head) + first;
      for (int d = 0; d < head_size; ++d) out[d * 16] = h[d];
      return;
    }
    case KvFormat::q8_0: {
      std::int8_t q[1024];
      std::uint16_t scales[32];
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
      std::int8_t q[1024];
      std::uint16_t scales[32];
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

// --- one partition
// ---------------------------------------------------------------------------------------------------------

// scores[q][position] for N queries over the page-wide run of positions that starts at `from` inside the partition.
template <class Kv, int N>
inline void score_page(const AttendArgs& a, int first_query, const std::byte* page_head, int from) {
  const int blocks_left = (a.count - from + 15) / 16, page_blocks = a.page_tokens / 16;
  const int blocks = blocks_left < page_blocks ? blocks_left : page_blocks;
  for (int block = 0; block < blocks; block += 2) {  // two blocks of 16 positions at a time
    const bool both = block + 1 < blocks;
    V s0[N], s1[N];
    for (int q = 0; q < N; ++q) s0[q] = s1[q] = zero();
    const int second = both ? block + 1 : block;
    for (int d = 0; d < a.head_size; ++d) {
      const V k0 = Kv::key(page_head, a.head_size, block, d), k1 = Kv::key(page_head, a.head_size, second, d);
#pragma GCC unroll 4
      for (int q = 0; q < N; ++q) {
        const V x = splat(a.query[first_query + q][d]);
        s0[q] = fma(k0, x, s0[q]);
        s1[q] = fma(k1, x, s1[q]);
      }
    }
    for (int q = 0; q < N; ++q) {
      float* out = a.scores + (first_query + q) * kPartition + from + 16 * block;
      store(out, s0[q]);
      if (both) store(out + 16, s1[q]);
    }
  }
}

// Scale, cap and mask the scores of one query, then p = exp(s - max). Lanes that are not visible become exactly 0.
inline void soften(const AttendArgs& a, int query) {
  float* s = a.scores + query * kPartition;
  const int lo = a.first[query] > a.begin ? a.first[query] - a.begin : 0;
  const int last = a.last[query] - a.begin;
  const int hi = last < a.count - 1 ? last : a.count - 1;  // visible: lo..hi
  const int lanes = (a.count + 15) / 16 * 16;
  const float minus_infinity = -__builtin_inff();
  V largest = splat(minus_infinity);
  for (int i = 0; i < lanes; i += 16) {
    V v = mul(load(s + i), splat(a.scale));
    if (a.softcap != 0.0f) v = mul(tanh(div(v, splat(a.softcap))), splat(a.softcap));
    store(s + i, v);
    if (i < lo || i + 15 > hi) {
      for (int j = i; j < i + 16; ++j) {
        if (j < lo || j > hi) s[j] = minus_infinity;
      }
    }
    largest = max(load(s + i), largest);
  }
  const float maximum = lo <= hi ? reduce_max(largest) : minus_infinity;
  V sum = zero();
  for (int i = 0; i < lanes; i += 16) {
    const V p = lo <= hi ? exp(sub(load(s + i), splat(maximum))) : zero();
    store(s + i, p);
    sum = add(sum, p);
  }
  a.maximum[query] = maximum;
  a.denominator[query] = reduce_add(sum);
}

// out[q] dimensions [d, d + 16 * C) = sum over positions of p * v.
template <class Kv, int N, int C>
inline void weigh_values(const AttendArgs& a, int first_query, int d) {
  V acc[N][C];
  for (auto& row : acc) {
    for (V& v : row) v = zero();
  }
  int lo = a.count, hi = -1;  // positions that any of these queries sees
  for (int q = first_query; q < first_query + N; ++q) {
    const int first = a.first[q] > a.begin ? a.first[q] - a.begin : 0;
    const int last = a.last[q] - a.begin < a.count - 1 ? a.last[q] - a.begin : a.count - 1;
    if (first > last) continue;
    lo = first < lo ? first : lo;
    hi = last > hi ? last : hi;
  }
  for (int j = lo; j <= hi; ++j) {
    const std::byte* page_head = a.value_pages[j / a.page_tokens];
    const int slot = j % a.page_tokens;
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const V v = Kv::value(page_head, a.head_size, a.page_tokens, slot, d + 16 * c);
#pragma GCC unroll 4
      for (int q = 0; q < N; ++q) acc[q][c] = fma(splat(a.scores[(first_query + q) * kPartition + j]), v, acc[q][c]);
    }
  }
  for (int q = 0; q < N; ++q) {
    for (int c = 0; c < C; ++c) store(a.out[first_query + q] + d + 16 * c, acc[q][c]);
  }
}

template <class Kv, int N>
inline void attend_queries(const AttendArgs& a, int first_query) {
  for (int from = 0; from < a.count; from += a.page_tokens) {
    score_page<Kv, N>(a, first_query, a.key_pages[from / a.page_tokens], from);
  }
  for (int q = first_query; q < first_query + N; ++q) soften(a, q);
  int d = 0;
  const int padded = padded16(a.head_size);
  for (; d + 64 <= padded; d += 64) weigh_values<Kv, N, 4>(a, first_query, d);
  for (; d < padded; d += 16) weigh_values<Kv, N, 1>(a, first_query, d);
}

template <class Kv>
inline void attend_format(const AttendArgs& a) {
  for (int q = 0; q < a.queries;) {
    const int left = a.queries - q;
    if (left >= 4) {
      attend_queries<Kv, 4>(a, q);
      q += 4;
    } else if (left == 3) {
      attend_queries<Kv, 3>(a, q);
      q += 3;
    } else if (left == 2) {
      attend_queries<Kv, 2>(a, q);
      q += 2;
    } else {
      attend_queries<Kv, 1>(a, q);
      q += 1;
    }
  }
}

void attend(const AttendArgs& a) {
  switch (a.format) {
    case KvFormat::f32: attend_format<KvF32>(a); return;
    case KvFormat::f16: attend_format<KvF16>(a); return;
    case KvFormat::q8_0: attend_format<KvQ8>(a); return;
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
