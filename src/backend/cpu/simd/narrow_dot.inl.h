// A Dot where products of bytes are added to halves of 16 bits (vpmaddubsw): a run of as many as cannot reach 32768,
// widened when it is closed. Over add_pairs(sum, halves, factors): each lane plus the products of its two halves.
struct Dot {
  I halves;
};
template <int Largest>  // of the weights; activations are at most 127
constexpr int kDotRun = 32767 / (2 * 127 * Largest);
constexpr std::int32_t kSignedBias = 0;  // the sign of a weight moves to the activation
inline Dot open_dot(I) { return {splat_i(0)}; }
inline I close_dot(I sum, Dot dot) { return add_pairs(sum, dot.halves, splat_i(0x00010001)); }
inline I close_scaled(I sum, Dot dot, I scales) { return add_pairs(sum, dot.halves, scales); }
inline I dot_scales(I scale) { return or_i(and_i(scale, splat_i(0xffff)), shift_left<16>(scale)); }
inline I dot2(I acc, I pairs, std::int32_t x) { return add_pairs(acc, pairs, splat_i(x)); }
