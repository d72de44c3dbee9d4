// What no kernel of this instruction set gets past: loops that do nothing but read, or nothing but multiply, in the
// words that the products are written in. They are the denominators of every "% of the limit".

constexpr int kReadStreams = 4;   // one sequential stream got 15 of 28 GB/s from L3 beside busy neighbours, four 26
constexpr int kReadAhead = 1024;  // bytes
constexpr int kLineBytes = 64;
constexpr int kLimitChains = kMaxTile;  // sums that do not wait for each other, as many as a kernel keeps

// A value that depends on all the bytes, so that none goes unread; `bytes` is a multiple of kReadStreams lines.
inline std::int32_t read_all(const std::byte* begin, std::size_t bytes) {
  const std::size_t each = bytes / kReadStreams;
  I sums[kReadStreams];
  for (I& sum : sums) sum = splat_i(0);
  for (std::size_t at = 0; at < each; at += kLineBytes) {
    for (int s = 0; s < kReadStreams; ++s) {
      const std::byte* line = begin + static_cast<std::size_t>(s) * each + at;
      __builtin_prefetch(line + kReadAhead);
      sums[s] = xor_i(sums[s], load_i(reinterpret_cast<const std::int32_t*>(line)));
    }
  }
  for (int s = 1; s < kReadStreams; ++s) sums[0] = xor_i(sums[0], sums[s]);
  std::int32_t lanes[16], all = 0;
  store_i(lanes, sums[0]);
  for (const std::int32_t lane : lanes) all ^= lane;
  return all;
}

// Both read their operands anew in every round, as a kernel does: else the products would be made once.
inline std::int64_t multiply_bytes(const std::int32_t* operands, std::int64_t rounds, float* out) {
  Dot sums[kLimitChains];
  for (Dot& sum : sums) sum = open_dot(splat_i(0));
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" ::: "memory");
    const I weights = load_i(operands);
#pragma GCC unroll 16
    for (int c = 0; c < kLimitChains; ++c) sums[c] = dot4_small(sums[c], weights, operands[c]);
  }
  V total = zero();
  for (const Dot sum : sums) total = add(total, to_float(close_dot(splat_i(0), sum)));
  store(out, total);
  return rounds * kLimitChains * 64;
}

inline std::int64_t multiply_floats(const float* operands, std::int64_t rounds, float* out) {
  V sums[kLimitChains];
  for (V& sum : sums) sum = zero();
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" ::: "memory");
    const V weights = load(operands);
#pragma GCC unroll 16
    for (int c = 0; c < kLimitChains; ++c) sums[c] = fma(weights, splat(operands[c]), sums[c]);
  }
  for (int c = 1; c < kLimitChains; ++c) sums[0] = add(sums[0], sums[c]);
  store(out, sums[0]);
  return rounds * kLimitChains * 16;
}
