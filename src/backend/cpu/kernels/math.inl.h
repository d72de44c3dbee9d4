// Elementwise maths over the vector words: reductions in a fixed order, exp, tanh and the activations.

// The lanes folded as a tree: (i, i+8), (i, i+4), (i, i+2), (i, i+1). Every reduction over lanes uses this order.
template <class Fold>
ADZE_INLINE float reduce(V a, Fold fold) {
  using Four = float __attribute__((vector_size(16)));
  float lanes[16];
  store(lanes, a);
  Four part[4];
  __builtin_memcpy(part, lanes, sizeof part);
  const Four four = fold(fold(part[0], part[2]), fold(part[1], part[3]));
  const Four two = fold(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return fold(two, __builtin_shufflevector(two, two, 1, 0, 3, 2))[0];
}
inline float reduce_add(V a) {
  return reduce(a, [](auto x, auto y) { return x + y; });
}
inline float reduce_max(V a) {
  return reduce(a, [](auto x, auto y) { return x > y ? x : y; });
}

// e^(x - n ln2) for |x - n ln2| <= ln2/2, by a degree-6 Taylor-like polynomial (error 2e-9).
inline V exp_of_rest(V x, V n) {
  V r = fma(n, splat(-0.693145752f), x);
  r = fma(n, splat(-1.42860677e-6f), r);
  V p = splat(1.0f / 720.0f);
  p = fma(p, r, splat(1.0f / 120.0f));
  p = fma(p, r, splat(1.0f / 24.0f));
  p = fma(p, r, splat(1.0f / 6.0f));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  return fma(p, r, splat(1.0f));
}

// e^x within 2 ulp; 0 below -87.3, so that masked scores of -inf vanish; inf above 88.7; NaN stays NaN.
// x = n ln2 + rest, 2^n in two exact halves.
inline V exp(V x) {
  const V n_float = to_float(to_int(mul(min(max(x, splat(-100.0f)), splat(100.0f)), splat(1.44269504f))));
  const V p = exp_of_rest(x, n_float);
  const I n = to_int(n_float);
  const I half = sub_i(shift_right<1>(add_i(n, splat_i(256))), splat_i(128));  // floor(n / 2)
  const V scale_a = as_float(shift_left<23>(add_i(half, splat_i(127))));
  const V scale_b = as_float(shift_left<23>(add_i(sub_i(n, half), splat_i(127))));
  V y = mul(mul(p, scale_a), scale_b);
  y = where_ge(x, splat(88.73f), splat(__builtin_inff()), y);
  y = where_ge(splat(-87.33f), x, zero(), y);
  return where_ge(x, x, y, x);  // NaN compares false
}

// The same bits for x <= 0 (and NaN) in two thirds of the instructions: no overflow, and 2^n is one exact factor where
// the result is not cut to 0.
inline V exp_of_negative(V x) {
  const V n_float = to_float(to_int(mul(x, splat(1.44269504f))));
  const V p = exp_of_rest(x, n_float);
  const V scale = as_float(shift_left<23>(add_i(to_int(n_float), splat_i(127))));
  return where_ge(splat(-87.33f), x, zero(), mul(p, scale));
}

inline V sigmoid(V x) { return div(splat(1.0f), add(splat(1.0f), exp(sub(zero(), x)))); }
inline V silu(V x) { return div(x, add(splat(1.0f), exp(sub(zero(), x)))); }
// tanh(x) = 1 - 2 / (e^(2x) + 1)
inline V tanh(V x) { return sub(splat(1.0f), div(splat(2.0f), add(exp(add(x, x)), splat(1.0f)))); }
// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
inline V gelu_tanh(V x) {
  const V u = mul(splat(0.79788456f), fma(mul(mul(x, x), x), splat(0.044715f), x));
  return mul(x, sigmoid(add(u, u)));
}
// g' sigmoid(1.702 g') (u' + 1), g' at most 7, u' from -7 to 7 (ops::Activation::swiglu_oai); NaN stays NaN.
inline V swiglu_oai(V gate, V up) {
  const V limit = splat(7.0f), lowest = splat(-7.0f);
  const V g = where_ge(gate, limit, limit, gate);
  const V u = where_ge(up, limit, limit, where_ge(lowest, up, lowest, up));
  return mul(div(g, add(splat(1.0f), exp(mul(splat(-1.702f), g)))), add(u, splat(1.0f)));
}

inline void rms_norm_row(const float* x, const float* weight, bool one_plus, float eps, int n, float* y) {
  V sum = zero();
  for (int i = 0; i < n; i += 16) {
    const V v = load_n(x + i, n - i < 16 ? n - i : 16);
    sum = fma(v, v, sum);
  }
  const float scale = 1.0f / __builtin_sqrtf(reduce_add(sum) / static_cast<float>(n) + eps);
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    V v = mul(load_n(x + i, m), splat(scale));
    if (weight != nullptr) {
      const V w = load_n(weight + i, m);
      v = mul(v, one_plus ? add(w, splat(1.0f)) : w);
    }
    store_n(y + i, v, m);
  }
}

inline void layer_norm_row(const float* x, const float* weight, bool one_plus, float eps, int n, float* y) {
  V sum = zero();
  for (int i = 0; i < n; i += 16) sum = add(sum, load_n(x + i, n - i < 16 ? n - i : 16));
  const V mean = splat(reduce_add(sum) / static_cast<float>(n));
  V squares = zero();
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    float d[16] = {};
    store_n(d, sub(load_n(x + i, m), mean), m);
    squares = fma(load(d), load(d), squares);
  }
  const float scale = 1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps);
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    V v = mul(sub(load_n(x + i, m), mean), splat(scale));
    if (weight != nullptr) {
      const V w = load_n(weight + i, m);
      v = mul(v, one_plus ? add(w, splat(1.0f)) : w);
    }
    store_n(y + i, v, m);
  }
}

// Rotates the first `dims` values of a head in place: pairs (i, i + dims/2), or (2i, 2i + 1) when interleaved.
inline void rope_head(float* head, const RopeTable& table) {
  const int half = table.dims / 2;
  if (table.interleaved) {
    for (int i = 0; i < half; ++i) {
      const float a = head[2 * i], b = head[2 * i + 1], c = table.cosine[i], s = table.sine[i];
      head[2 * i] = __builtin_fmaf(a, c, -(b * s));
      head[2 * i + 1] = __builtin_fmaf(a, s, b * c);
    }
    return;
  }
  for (int i = 0; i < half; i += 16) {
    const int m = half - i < 16 ? half - i : 16;
    const V a = load_n(head + i, m), b = load_n(head + half + i, m);
    const V c = load_n(table.cosine + i, m), s = load_n(table.sine + i, m);
    store_n(head + i, fma(a, c, sub(zero(), mul(b, s))), m);
    store_n(head + half + i, fma(a, s, mul(b, c)), m);
  }
}

inline void add_row(float* y, const float* x, int n) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    store_n(y + i, add(load_n(y + i, m), load_n(x + i, m)), m);
  }
}
inline void add_scaled_row(float* y, const float* x, float factor, int n) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    store_n(y + i, fma(splat(factor), load_n(x + i, m), load_n(y + i, m)), m);
  }
}
inline void scale_row(float* y, float factor, int n) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    store_n(y + i, mul(load_n(y + i, m), splat(factor)), m);
  }
}
inline void softcap_row(float* y, float cap, int n) {
  for (int i = 0; i < n; i += 16) {
    const int m = n - i < 16 ? n - i : 16;
    store_n(y + i, mul(tanh(div(load_n(y + i, m), splat(cap))), splat(cap)), m);
  }
}
inline bool block_maxima(const float* x, int n, float* maxima) {
  V bad = zero();  // x - x is 0 for finite x, NaN otherwise, and NaN stays
  for (int i = 0; i < n; i += 64) {
    const int end = n - i < 64 ? n : i + 64;
    V largest = splat(-__builtin_inff());
    int j = i;
    for (; j + 16 <= end; j += 16) {
      const V v = load(x + j);
      bad = add(bad, sub(v, v));
      largest = max(v, largest);
    }
    float most = reduce_max(largest);
    for (; j < end; ++j) {
      const V v = splat(x[j]);
      bad = add(bad, sub(v, v));
      most = x[j] > most ? x[j] : most;
    }
    maxima[i / 64] = most;
  }
  return reduce_add(bad) == 0.0f;
}
