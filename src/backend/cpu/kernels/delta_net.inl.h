// Gated DeltaNet: the short convolution, the gates, and the delta rule over the rows of a sequence. The scan is serial
// over rows and parallel over the columns of the state, which never mix; sums over a head's keys run in order, so
// neither the cut of columns nor the cut of rows changes a bit.

// log(1 + e^x) = max(x, 0) + log1p(e^-|x|); log1p(t) = 2 atanh(t / (2 + t)) by its series, s^2 <= 1/9 (error 1e-9).
inline V softplus(V x) {
  const V t = exp(sub(zero(), abs(x)));
  const V s = div(t, add(t, splat(2.0f)));
  const V z = mul(s, s);
  V p = splat(1.0f / 17.0f);
  p = fma(p, z, splat(1.0f / 15.0f));
  p = fma(p, z, splat(1.0f / 13.0f));
  p = fma(p, z, splat(1.0f / 11.0f));
  p = fma(p, z, splat(1.0f / 9.0f));
  p = fma(p, z, splat(1.0f / 7.0f));
  p = fma(p, z, splat(1.0f / 5.0f));
  p = fma(p, z, splat(1.0f / 3.0f));
  p = fma(p, z, splat(1.0f));
  return add(max(x, zero()), mul(add(s, s), p));
}

void convolve(const float* const* rows, const float* weights, std::size_t weight_stride, int kernel, int n, float* y) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    V sum = zero();
    for (int j = 0; j < kernel; ++j) {
      sum = fma(load_n(weights + static_cast<std::size_t>(j) * weight_stride + i, m), load_n(rows[j] + i, m), sum);
    }
    store_n(y + i, silu(sum), m);
  }
}

inline float dot(const float* a, const float* b, int n) {
  V sum = zero();
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    sum = fma(load_n(a + i, m), load_n(b + i, m), sum);
  }
  return reduce_add(sum);
}

void l2_norm(float* x, float epsilon, float scale, int n) {
  scale_row(x, scale / __builtin_sqrtf(dot(x, x, n) + epsilon), n);
}

void delta_gates(const float* a, const float* b, const float* rate, const float* dt_bias, int n, float* decay,
                 float* beta) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    const V step = softplus(add(load_n(a + i, m), load_n(dt_bias + i, m)));
    store_n(decay + i, exp(mul(load_n(rate + i, m), step)), m);
    store_n(beta + i, sigmoid(load_n(b + i, m)), m);
  }
}

// Vectors of columns that a scan keeps in registers: sums for k and for q, and the correction of the row before.
constexpr int kScanVectors = kMaxTile > 6 ? 4 : 2;

// Floats between what a state's first walk reads and what it asks for: a token's states come from far away, and with
// this its scan takes 0.83 of the time (4 times as far 0.9).
constexpr int kScanAhead = 512;

// Columns [column, column + 16 C). A row needs S after the row before, decayed, times k and q. So one walk over S
// writes the update of the row before and gathers both sums; out = S_new^T q is g S^T q + d (k . q).
template <int C>
inline void scan_columns(const DeltaScanArgs& a, int column) {
  V correction[C];  // of the row before
  for (int c = 0; c < C; ++c) correction[c] = zero();
  const auto lanes = [&](int c) {
    const int left = a.columns - column - 16 * c;
    return left < 16 ? left : 16;
  };
  for (int t = 0; t < a.rows; ++t) {
    const std::size_t row = static_cast<std::size_t>(t) * a.row_stride;
    const float *k = a.k + row, *q = a.q + row;
    V by_key[C], by_query[C];
    for (int c = 0; c < C; ++c) by_key[c] = by_query[c] = zero();
    if (t == 0) {
      for (int d = 0; d < a.key_size; ++d) {
        const float* s = a.state + static_cast<std::size_t>(d) * a.state_stride + column;
        for (int c = 0; c < C; ++c) __builtin_prefetch(s + 16 * c + kScanAhead);
        const V key = splat(k[d]), query = splat(q[d]);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          const V cell = load(s + 16 * c);
          by_key[c] = fma(cell, key, by_key[c]);
          by_query[c] = fma(cell, query, by_query[c]);
        }
      }
    } else {
      const float* before = k - a.row_stride;
      const V decay = splat(a.decay[row - a.row_stride]);
      const float* state = t == 1 ? a.state : a.next;
      for (int d = 0; d < a.key_size; ++d) {
        const std::size_t at = static_cast<std::size_t>(d) * a.state_stride + static_cast<std::size_t>(column);
        const float* s = state + at;
        float* next = a.next + at;
        const V key = splat(k[d]), query = splat(q[d]), old_key = splat(before[d]);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          const V cell = fma(old_key, correction[c], mul(load(s + 16 * c), decay));
          store(next + 16 * c, cell);
          by_key[c] = fma(cell, key, by_key[c]);
          by_query[c] = fma(cell, query, by_query[c]);
        }
      }
    }
    const V decay = splat(a.decay[row]), beta = splat(a.beta[row]), overlap = splat(dot(k, q, a.key_size));
    for (int c = 0; c < C; ++c) {
      const V value = load_n(a.v + row + column + 16 * c, lanes(c));
      correction[c] = mul(beta, sub(value, mul(decay, by_key[c])));
      store_n(a.out + static_cast<std::size_t>(t) * a.out_stride + column + 16 * c,
              fma(correction[c], overlap, mul(decay, by_query[c])), lanes(c));
    }
  }
  if (a.next != a.state) return;
  const std::size_t last = static_cast<std::size_t>(a.rows - 1) * a.row_stride;
  const V decay = splat(a.decay[last]);
  for (int d = 0; d < a.key_size; ++d) {
    float* s = a.next + static_cast<std::size_t>(d) * a.state_stride + column;
    const V key = splat(a.k[last + static_cast<std::size_t>(d)]);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) store(s + 16 * c, fma(key, correction[c], mul(load(s + 16 * c), decay)));
  }
}

void delta_scan(const DeltaScanArgs& a) {
  int column = 0;
  for (; a.columns - column > 16 * (kScanVectors - 1); column += 16 * kScanVectors) {
    scan_columns<kScanVectors>(a, column);
  }
  for (; column < a.columns; column += 16) scan_columns<1>(a, column);
}

void multiply_sigmoid(float* y, const float* gate, int n) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    store_n(y + i, mul(load_n(y + i, m), sigmoid(load_n(gate + i, m))), m);
  }
}
