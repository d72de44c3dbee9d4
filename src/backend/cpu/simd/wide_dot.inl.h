// A Dot where products of bytes are added to lanes of 32 bits: it goes on from the sum that it shall be added to, and
// holds any number of products.
using Dot = I;
template <int>
constexpr int kDotRun = 64;
inline Dot open_dot(I sum) { return sum; }
inline I close_dot(I, Dot dot) { return dot; }
inline I close_scaled(I sum, Dot dot, I scales) { return add_i(sum, mul_i(scales, dot)); }
inline I dot_scales(I scale) { return scale; }
