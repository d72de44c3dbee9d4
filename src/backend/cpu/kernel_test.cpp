// Every kernel of every table that this machine can run, against its slow definition and, bit for bit, against the
// scalar table: odd sizes, incomplete groups, misaligned weights, one row and many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/kernel_table.hpp"
#include "base/half.hpp"
#include "support/mlx_weight.hpp"
#include "tensor/dtype.hpp"

namespace adze::cpu {
namespace {

using tensor::DType;

constexpr DType kWeightTypes[] = {
    DType::f32,   DType::f16,   DType::bf16,  DType::q4_0,  DType::q4_1,  DType::q5_0,   DType::q5_1,     DType::q8_0,
    DType::q2_k,  DType::q3_k,  DType::q4_k,  DType::q5_k,  DType::q6_k,  DType::iq4_nl, DType::iq4_xs,   DType::mxfp4,
    DType::mlx_2, DType::mlx_3, DType::mlx_4, DType::mlx_5, DType::mlx_6, DType::mlx_8,  DType::mlx_mxfp4};

std::vector<float> random_floats(std::size_t n, unsigned seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

// Random blocks of a type, one byte off alignment, with every scale a moderate number; and their exact values.
struct Weights {
  std::vector<std::byte> storage;
  std::vector<float> values;  // [rows][k]
  std::size_t stride = 0;
  std::shared_ptr<const test::MlxWeight> codes{};  // of types whose scales stand beside them
  const std::byte* data() const { return codes != nullptr ? codes->codes().data() : storage.data() + 1; }
};

// The size of the groups and the type of the scales change with the seed.
Weights random_codes(DType type, int rows, int k, unsigned seed) {
  using Scale = tensor::GroupScales::Type;
  constexpr std::pair<int, Scale> kKinds[] = {
      {64, Scale::bf16}, {32, Scale::f32}, {128, Scale::f16}, {32, Scale::bf16}, {64, Scale::f32}};
  const auto [group, scale] = kKinds[seed % std::size(kKinds)];
  const auto input = random_floats(static_cast<std::size_t>(rows) * static_cast<std::size_t>(k), seed, 0.1f);
  Weights w;
  w.codes = std::make_shared<test::MlxWeight>(type, rows, k, input, type == DType::mlx_mxfp4 ? 32 : group, scale);
  w.stride = tensor::row_bytes(type, k);
  w.values = w.codes->values();
  return w;
}

Weights random_weights(DType type, int rows, int k, unsigned seed) {
  const tensor::DTypeInfo& info = tensor::dtype_info(type);
  if (info.code_bits != 0) return random_codes(type, rows, k, seed);
  Weights w;
  w.stride = tensor::row_bytes(type, k);
  w.storage.resize(static_cast<std::size_t>(rows) * w.stride + 65);
  w.values.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(k));
  const std::vector<float> input = random_floats(w.values.size(), seed, 0.1f);
  std::mt19937 random(seed + 1);
  for (int r = 0; r < rows; ++r) {
    std::byte* row = w.storage.data() + 1 + static_cast<std::size_t>(r) * w.stride;
    float* values = w.values.data() + static_cast<std::size_t>(r) * static_cast<std::size_t>(k);
    const float* x = input.data() + static_cast<std::size_t>(r) * static_cast<std::size_t>(k);
    const auto blocks = static_cast<std::size_t>(k) / info.block_elements;
    info.quantise(x, nullptr, row, blocks);
    info.dequantise(row, values, blocks);
  }
  return w;
}

struct Activations {
  int max_tile = 1;
  std::vector<float> floats;
  std::vector<std::int8_t> quants;
  std::vector<float> scales, scaled_sums;
  std::vector<std::int32_t> sums;
  QuantisedRows rows() { return {quants.data(), scales.data(), scaled_sums.data(), sums.data()}; }
};

// In tiles of at most max_tile rows; 0: as many as the table takes.
Activations activations(const KernelTable& table, int block, int tokens, int k, std::size_t ld, unsigned seed,
                        int max_tile = 0) {
  Activations a;
  a.max_tile = max_tile == 0 ? table.max_tile : max_tile;
  a.floats.assign(static_cast<std::size_t>(tokens) * ld, 0.0f);
  const auto n = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(k);
  a.quants.resize(n);
  a.scales.resize(n / 16 + 1);
  a.scaled_sums.resize(n / 16 + 1);
  a.sums.resize(n / 16 + 1);
  for (int t = 0; t < tokens; ++t) {
    const auto x = random_floats(static_cast<std::size_t>(k), seed + static_cast<unsigned>(t));
    std::copy(x.begin(), x.end(), a.floats.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(t) * ld));
    const Tile tile = tile_of(t, tokens, a.max_tile);
    if (block == 32) table.quantise32(a.floats.data() + static_cast<std::size_t>(t) * ld, k, a.rows(), t, tile);
    if (block == 256) table.quantise256(a.floats.data() + static_cast<std::size_t>(t) * ld, k, a.rows(), t, tile);
  }
  return a;
}

// The activations as the int8 schemes round them, by their definition.
std::vector<float> rounded(const std::vector<float>& x, int tokens, int k, std::size_t ld, int block) {
  std::vector<float> out = x;
  if (block == 0) return out;
  for (int t = 0; t < tokens; ++t) {
    for (int b = 0; b < k; b += block) {
      float* v = out.data() + static_cast<std::size_t>(t) * ld + b;
      float largest = 0.0f;
      for (int i = 0; i < block; ++i) largest = std::max(largest, std::fabs(v[i]));
      if (largest == 0.0f) continue;
      const float scale = block == 32 ? f16_to_f32(f32_to_f16(largest / 127.0f)) : 1.0f / (127.0f / largest);
      for (int i = 0; i < block; ++i) v[i] = std::nearbyint(v[i] * (127.0f / largest)) * scale;
    }
  }
  return out;
}

std::byte* aligned(std::vector<std::byte>& bytes) {
  return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
}

MatmulArgs make_args(DType type, const Weights& w, int rows, int k, Activations& x, int tokens, std::size_t ld,
                     std::vector<float>& out, std::vector<std::byte>& panel) {
  const tensor::DTypeInfo& info = tensor::dtype_info(type);
  MatmulArgs a{};
  a.weights = w.data();
  a.row_stride = w.stride;
  if (w.codes != nullptr) {
    a.groups = w.codes->ref()->groups;
    a.scale_stride = w.codes->ref()->scale_stride();
  }
  a.rows = rows;
  a.k = k;
  a.quantised = x.rows();
  a.floats = x.floats.data();
  a.ld_floats = ld;
  a.tokens = tokens;
  a.max_tile = x.max_tile;
  a.ahead = 2048;
  a.out = out.data();
  a.ld_out = static_cast<std::size_t>(rows) + 3;
  a.dequantise = info.dequantise;
  a.block_elements = static_cast<int>(info.block_elements);
  a.block_bytes = static_cast<int>(info.block_bytes);
  a.panel = aligned(panel);
  return a;
}

// All groups of a weight in the packed layout, with 64 bytes more.
std::vector<std::byte> packed(const MatmulKernel& kernel, const MatmulArgs& from) {
  const std::size_t bytes = kernel.packed_bytes(from.k, from.groups);
  EXPECT_EQ(bytes % 64, 0u);
  const int groups = (from.rows + kGroupRows - 1) / kGroupRows;
  std::vector<std::byte> out(bytes * static_cast<std::size_t>(groups) + 64, std::byte{0xaa});
  for (int group = 0; group < groups; ++group) {
    kernel.pack(from, group, aligned(out) + static_cast<std::size_t>(group) * bytes);
  }
  return out;
}

enum class Layout : std::uint8_t { file, packed };

std::vector<float> multiply(const KernelTable& table, const MatmulKernel& kernel, DType type, const Weights& w,
                            int rows, int k, int tokens, unsigned seed, Layout layout = Layout::file,
                            int max_tile = 0) {
  const std::size_t ld = static_cast<std::size_t>((k + 15) / 16 * 16);
  Activations x = activations(table, kernel.activation_block, tokens, k, ld, seed, max_tile);
  std::vector<float> out(static_cast<std::size_t>(tokens) * (static_cast<std::size_t>(rows) + 3), -7.0f);
  std::vector<std::byte> panel(kernel.panel_bytes(k, w.stride) + 64);
  MatmulArgs a = make_args(type, w, rows, k, x, tokens, ld, out, panel);
  std::vector<std::byte> storage;
  if (layout == Layout::packed) {
    storage = packed(kernel, a);
    a.packed = aligned(storage);
    a.weights = nullptr;  // the packed bytes are enough
    a.groups.scales = a.groups.biases = nullptr;
  }
  const int groups = (rows + kGroupRows - 1) / kGroupRows, half = groups / 2;
  kernel.run(a, half, groups);
  kernel.run(a, 0, half);
  return out;
}

class MatmulTest : public ::testing::TestWithParam<DType> {};

TEST_P(MatmulTest, EqualsItsDefinitionForEveryTableShapeAndRowCount) {
  const DType type = GetParam();
  const tensor::DTypeInfo& info = tensor::dtype_info(type);
  const int block = static_cast<int>(info.block_elements);
  for (const int rows : {1, 15, 16, 33, 40}) {
    // Codes: enough of the smallest groups, which 15 rows get, to fill a vector of scales and begin another.
    const int k = block == 1 ? 72 + rows % 7 : info.code_bits == 0 ? block * 3 : rows == 15 ? 640 : 128;
    const Weights w = random_weights(type, rows, k, static_cast<unsigned>(rows) / 8);
    const std::size_t ld = static_cast<std::size_t>((k + 15) / 16 * 16);
    for (const bool floats : {false, true}) {
      for (const int tokens : {1, 2, 3, 4, 5, 7, 12, 13, 25}) {
        std::vector<float> reference;
        for (const KernelTable* table : available_tables()) {
          const MatmulKernel& kernel = (floats ? table->float_kernels : table->int8_kernels)[static_cast<int>(type)];
          if (kernel.name == nullptr) continue;
          const std::vector<float> out = multiply(*table, kernel, type, w, rows, k, tokens, 100);
          // Bit for bit the same for every table.
          if (reference.empty()) {
            reference = out;
            Activations x = activations(*table, 0, tokens, k, ld, 100);
            const std::vector<float> y = rounded(x.floats, tokens, k, ld, kernel.activation_block);
            for (int t = 0; t < tokens; ++t) {
              for (int r = 0; r < rows; ++r) {
                double sum = 0, magnitude = 0;
                for (int i = 0; i < k; ++i) {
                  const double term =
                      static_cast<double>(w.values[static_cast<std::size_t>(r * k + i)]) *
                      static_cast<double>(y[static_cast<std::size_t>(t) * ld + static_cast<std::size_t>(i)]);
                  sum += term;
                  magnitude += std::fabs(term);
                }
                ASSERT_NEAR(out[static_cast<std::size_t>(t * (rows + 3) + r)], sum, 2e-6 * magnitude + 1e-6)
                    << table->name << ' ' << info.name << " rows " << rows << " tokens " << tokens << " at " << t << ','
                    << r;
              }
              for (int r = rows; r < rows + 3; ++r) ASSERT_EQ(out[static_cast<std::size_t>(t * (rows + 3) + r)], -7.0f);
            }
          } else {
            ASSERT_EQ(std::memcmp(out.data(), reference.data(), out.size() * sizeof(float)), 0)
                << table->name << ' ' << info.name << " rows " << rows << " tokens " << tokens;
          }
          // Packed weights give the bits that the file's give.
          if (kernel.pack != nullptr) {
            const std::vector<float> same = multiply(*table, kernel, type, w, rows, k, tokens, 100, Layout::packed);
            ASSERT_EQ(std::memcmp(same.data(), out.data(), out.size() * sizeof(float)), 0)
                << table->name << ' ' << info.name << " packed, rows " << rows << " tokens " << tokens;
          }
          // So do smaller tiles of rows.
          for (int tile = 1; tokens == 13 && rows == 33 && tile < table->max_tile; tile += 2) {
            const std::vector<float> same = multiply(*table, kernel, type, w, rows, k, tokens, 100, Layout::file, tile);
            ASSERT_EQ(std::memcmp(same.data(), out.data(), out.size() * sizeof(float)), 0)
                << table->name << ' ' << info.name << " tiles of " << tile;
          }
          // A row alone gives the bits it gives among others.
          if (tokens > 1) {
            const std::vector<float> alone =
                multiply(*table, kernel, type, w, rows, k, 1, 100 + static_cast<unsigned>(tokens) - 1);
            ASSERT_EQ(std::memcmp(alone.data(), out.data() + static_cast<std::size_t>((tokens - 1) * (rows + 3)),
                                  static_cast<std::size_t>(rows) * sizeof(float)),
                      0)
                << table->name << ' ' << info.name << " rows " << rows << " tokens " << tokens;
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, GatedPairIsTwoProductsAndTheActivation) {
  const DType type = GetParam();
  const int rows = 24, k = tensor::dtype_info(type).block_elements == 1
                               ? 64
                               : std::max(128, static_cast<int>(tensor::dtype_info(type).block_elements));
  const Weights gate = random_weights(type, rows, k, 5), up = random_weights(type, rows, k, 8);
  const auto ld = static_cast<std::size_t>(k);
  for (const KernelTable* table : available_tables()) {
    for (const MatmulKernel* kernel :
         {&table->int8_kernels[static_cast<int>(type)], &table->float_kernels[static_cast<int>(type)]}) {
      if (kernel->name == nullptr) continue;
      for (const int tokens : {1, 6}) {
        for (const GatedActivation act :
             {GatedActivation::silu, GatedActivation::gelu_tanh, GatedActivation::swiglu_oai}) {
          std::vector<float> g = multiply(*table, *kernel, type, gate, rows, k, tokens, 9);
          const std::vector<float> u = multiply(*table, *kernel, type, up, rows, k, tokens, 9);
          table->gate(g.data(), u.data(), act, static_cast<int>(g.size()));
          Activations x = activations(*table, kernel->activation_block, tokens, k, ld, 9);
          std::vector<float> out(g.size(), 0.0f), none;
          std::vector<std::byte> panel_a(kernel->panel_bytes(k, gate.stride) + 64),
              panel_b(kernel->panel_bytes(k, up.stride) + 64);
          const MatmulArgs a = make_args(type, gate, rows, k, x, tokens, ld, out, panel_a);
          const MatmulArgs b = make_args(type, up, rows, k, x, tokens, ld, none, panel_b);
          kernel->gated(a, b, act, 0, 2);
          if (kernel->pack != nullptr) {
            std::vector<std::byte> packed_gate = packed(*kernel, a), packed_up = packed(*kernel, b);
            std::vector<float> again(out.size(), 0.0f);
            MatmulArgs c = a, d = b;
            c.packed = aligned(packed_gate);
            c.out = again.data();
            d.packed = aligned(packed_up);
            kernel->gated(c, d, act, 0, 2);
            ASSERT_EQ(out, again) << table->name << ' ' << kernel->name;
          }
          for (int t = 0; t < tokens; ++t) {
            for (int r = 0; r < rows; ++r) {
              const auto at = static_cast<std::size_t>(t * (rows + 3) + r);
              ASSERT_EQ(out[at], g[at]) << table->name << ' ' << kernel->name << ' ' << t << ',' << r;
            }
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, EveryTablePacksTheSameBytes) {
  const DType type = GetParam();
  const int rows = 40, k = tensor::dtype_info(type).block_elements == 1 ? 77 : 768;
  const Weights w = random_weights(type, rows, k, 3);
  std::vector<float> none;
  for (const bool floats : {false, true}) {
    std::vector<std::byte> first;
    for (const KernelTable* table : available_tables()) {
      const MatmulKernel& kernel = (floats ? table->float_kernels : table->int8_kernels)[static_cast<int>(type)];
      if (kernel.name == nullptr || kernel.pack == nullptr) continue;
      Activations x = activations(*table, 0, 1, k, static_cast<std::size_t>((k + 15) / 16 * 16), 9);
      std::vector<std::byte> panel(kernel.panel_bytes(k, w.stride) + 64);
      std::vector<std::byte> all = packed(kernel, make_args(type, w, rows, k, x, 1, 16, none, panel));
      const std::size_t bytes = 3 * kernel.packed_bytes(k, make_args(type, w, rows, k, x, 1, 16, none, panel).groups);
      const std::vector<std::byte> out(aligned(all), aligned(all) + bytes);
      if (first.empty()) first = out;
      EXPECT_EQ(first, out) << table->name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulTest, ::testing::ValuesIn(kWeightTypes), [](const auto& test) {
  std::string name(tensor::dtype_info(test.param).name);
  std::erase(name, '-');
  return name;
});

// --- elementwise
// ------------------------------------------------------------------------------------------------------

TEST(Elementwise, NormsFollowTheirFormula) {
  for (const int n : {1, 7, 16, 24, 576, 577}) {
    const auto x = random_floats(static_cast<std::size_t>(n), 3), w = random_floats(static_cast<std::size_t>(n), 4);
    std::vector<float> first;
    for (const KernelTable* table : available_tables()) {
      std::vector<float> y(static_cast<std::size_t>(n)), z(y);
      table->rms_norm(x.data(), w.data(), true, 1e-5f, n, y.data());
      table->layer_norm(x.data(), nullptr, false, 1e-5f, n, z.data());
      double squares = 0, sum = 0, variance = 0;
      for (const float v : x) squares += double{v} * double{v}, sum += double{v};
      for (const float v : x) variance += (double{v} - sum / n) * (double{v} - sum / n);
      for (int i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        EXPECT_NEAR(y[at], double{x[at]} / std::sqrt(squares / n + 1e-5) * (1.0 + double{w[at]}),
                    2e-6 * (1 + std::fabs(y[at])));
        EXPECT_NEAR(z[at], (double{x[at]} - sum / n) / std::sqrt(variance / n + 1e-5), 1e-5 * (1 + std::fabs(z[at])));
      }
      y.insert(y.end(), z.begin(), z.end());
      if (first.empty()) first = y;
      EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * 4), 0) << table->name;
    }
  }
}

TEST(Elementwise, ActivationsFollowTheirFormula) {
  std::vector<float> x;
  for (int i = 0; i < 1460; ++i) x.push_back(-100.0f + 0.137f * static_cast<float>(i));
  const int n = static_cast<int>(x.size());
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> first;
  for (const KernelTable* table : available_tables()) {
    std::vector<float> silu = x, gelu = x, cap = x, oai = x;
    std::vector<float> up(x.rbegin(), x.rend());
    table->gate(silu.data(), ones.data(), GatedActivation::silu, n);
    table->gate(gelu.data(), ones.data(), GatedActivation::gelu_tanh, n);
    table->gate(oai.data(), up.data(), GatedActivation::swiglu_oai, n);
    table->softcap(cap.data(), 30.0f, n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = double{x[i]};
      EXPECT_NEAR(silu[i], v / (1 + std::exp(-v)), 3e-7 * std::fabs(v) + 1e-30);
      EXPECT_NEAR(gelu[i], 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))),
                  1e-6 * std::fabs(v) + 1e-30);
      const double g = std::min(v, 7.0), u = std::clamp(double{up[i]}, -7.0, 7.0);
      EXPECT_NEAR(oai[i], g / (1 + std::exp(-1.702 * g)) * (u + 1), 1e-6 * std::fabs(g * (u + 1)) + 1e-30);
      EXPECT_NEAR(cap[i], std::tanh(v / 30) * 30, 30 * 4 * 0x1p-24);  // four roundings of values up to 1
    }
    silu.insert(silu.end(), gelu.begin(), gelu.end());
    silu.insert(silu.end(), cap.begin(), cap.end());
    silu.insert(silu.end(), oai.begin(), oai.end());
    if (first.empty()) first = silu;
    EXPECT_EQ(std::memcmp(first.data(), silu.data(), silu.size() * 4), 0) << table->name;
  }
}

TEST(Elementwise, AddScaledRoundsOnce) {
  const auto x = random_floats(37, 3), start = random_floats(37, 4);
  for (const KernelTable* table : available_tables()) {
    std::vector<float> y = start;
    table->add_scaled(y.data(), x.data(), 0.3f, 37);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], std::fma(0.3f, x[i], start[i])) << table->name;
  }
}

TEST(Elementwise, RopeRotatesPairs) {
  const int dims = 24, half = dims / 2;
  const auto x = random_floats(40, 8);
  std::vector<float> cosine, sine;
  for (int i = 0; i < half; ++i) {
    cosine.push_back(std::cos(0.3f * static_cast<float>(i)));
    sine.push_back(std::sin(0.3f * static_cast<float>(i)));
  }
  for (const KernelTable* table : available_tables()) {
    for (const bool interleaved : {false, true}) {
      std::vector<float> y = x;
      table->rope(y.data(), {cosine.data(), sine.data(), dims, interleaved});
      for (int i = 0; i < half; ++i) {
        const auto a = static_cast<std::size_t>(interleaved ? 2 * i : i),
                   b = static_cast<std::size_t>(interleaved ? 2 * i + 1 : i + half);
        const auto c = static_cast<std::size_t>(i);
        EXPECT_NEAR(y[a], x[a] * cosine[c] - x[b] * sine[c], 1e-6);
        EXPECT_NEAR(y[b], x[a] * sine[c] + x[b] * cosine[c], 1e-6);
      }
      for (std::size_t i = dims; i < x.size(); ++i) EXPECT_EQ(y[i], x[i]);
    }
  }
}

TEST(Elementwise, MaximaOfBlocksAndWhatIsNotFinite) {
  for (const KernelTable* table : available_tables()) {
    for (const int n : {1, 16, 37, 64, 65, 200}) {
      const auto x = random_floats(static_cast<std::size_t>(n), static_cast<unsigned>(n));
      std::vector<float> maxima(static_cast<std::size_t>(n + 63) / 64 + 1, -7.0f);
      ASSERT_TRUE(table->block_maxima(x.data(), n, maxima.data()));
      for (int i = 0; i < n; i += 64) {
        EXPECT_EQ(maxima[static_cast<std::size_t>(i / 64)],
                  *std::max_element(x.begin() + i, x.begin() + std::min(n, i + 64)))
            << table->name;
      }
      EXPECT_EQ(maxima.back(), -7.0f);
      for (const float bad :
           {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        for (const int at : {0, n / 2, n - 1}) {
          auto y = x;
          y[static_cast<std::size_t>(at)] = bad;
          EXPECT_FALSE(table->block_maxima(y.data(), n, maxima.data())) << table->name << ' ' << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace adze::cpu
