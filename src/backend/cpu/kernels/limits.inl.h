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
#pragma GCC unroll 4
  for (int s = 0; s < kReadStreams; ++s) sums[s] = splat_i(0);
  for (std::size_t at = 0; at < each; at += kLineBytes) {
#pragma GCC unroll 4
    for (int s = 0; s < kReadStreams; ++s) {
      const std::byte* line = begin + static_cast<std::size_t>(s) * each + at;
      __builtin_prefetch(line + kReadAhead);
      sums[s] = xor_i(sums[s], load_i(reinterpret_cast<const std::int32_t*>(line)));
    }
  }
#pragma GCC unroll 4
  for (int s = 1; s < kReadStreams; ++s) sums[0] = xor_i(sums[0], sums[s]);
  std::int32_t lanes[16], all = 0;
  store_i(lanes, sums[0]);
  for (const std::int32_t lane : lanes) all ^= lane;
  return all;
}

// Both read their operands anew in every round, as a kernel does: else the products would be made once. Every loop over
// the sums is unrolled, or they would live in memory.
inline std::int64_t multiply_bytes(const std::int32_t* operands, std::int64_t rounds, float* out) {
  Dot sums[kLimitChains];
#pragma GCC unroll 16
  for (int c = 0; c < kLimitChains; ++c) sums[c] = open_dot(splat_i(0));
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+r"(operands));
    const I weights = load_i(operands);
#pragma GCC unroll 16
    for (int c = 0; c < kLimitChains; ++c) sums[c] = dot4_small(sums[c], weights, operands[c]);
  }
  V total = zero();
#pragma GCC unroll 16
  for (int c = 0; c < kLimitChains; ++c) total = add(total, to_float(close_dot(splat_i(0), sums[c])));
  store(out, total);
  return rounds * kLimitChains * 64;
}

inline std::int64_t multiply_floats(const float* operands, std::int64_t rounds, float* out) {
  V sums[kLimitChains];
#pragma GCC unroll 16
  for (int c = 0; c < kLimitChains; ++c) sums[c] = zero();
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+r"(operands));
    const V weights = load(operands);
#pragma GCC unroll 16
    for (int c = 0; c < kLimitChains; ++c) sums[c] = fma(weights, splat(operands[c]), sums[c]);
  }
  V total = zero();
#pragma GCC unroll 16
  for (int c = 0; c < kLimitChains; ++c) total = add(total, sums[c]);
  store(out, total);
  return rounds * kLimitChains * 16;
}
