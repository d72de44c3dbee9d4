// The CPU kernels, one at a time, on one thread: matrix products of every weight type with 1 to 256 rows of
// activations, for every table this machine can run, in GB/s of weights and GMAC/s; attention over the cache; and the
// read bandwidth of the machine for the same working set, as the bound for one row.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdint>
#include <random>
#include <vector>

#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/kv_store.hpp"
#include "tensor/dtype.hpp"

namespace adze::cpu {
namespace {

using tensor::DType;

// A weight matrix of random blocks, larger than the second-level cache, and activations for it.
struct MatmulBench {
  MatmulBench(const KernelTable& table, const MatmulKernel& k, DType type, int row_count, int columns, int tokens)
      : kernel(k), rows(row_count), out(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(row_count)) {
    const tensor::DTypeInfo& info = tensor::dtype_info(type);
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    const std::size_t stride = tensor::row_bytes(type, columns);
    std::vector<float> row(static_cast<std::size_t>(columns));
    weights.resize(stride * static_cast<std::size_t>(rows) + 64);
    for (float& x : row) x = normal(random);
    tensor::quantise_row(type, row.data(), weights.data(), columns);
    for (int r = 1; r < rows; ++r)
      std::copy_n(weights.data(), stride, weights.data() + static_cast<std::size_t>(r) * stride);
    const auto n = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(columns);
    floats.resize(n);
    quants.resize(n);
    scales.resize(n);
    scaled_sums.resize(n);
    sums.resize(n);
    for (float& x : floats) x = normal(random);
    args.quantised = {quants.data(), scales.data(), scaled_sums.data(), sums.data()};
    for (int t = 0; t < tokens; ++t) {
      const float* x = floats.data() + static_cast<std::size_t>(t) * static_cast<std::size_t>(columns);
      const Tile tile = tile_of(t, tokens, table.max_tile);
      if (kernel.activation_block == 32) table.quantise32(x, columns, args.quantised, t, tile);
      if (kernel.activation_block == 256) table.quantise256(x, columns, args.quantised, t, tile);
    }
    panel.resize(kernel.panel_bytes(columns, stride) + 64);
    args.weights = weights.data();
    args.row_stride = stride;
    args.rows = rows;
    args.k = columns;
    args.floats = floats.data();
    args.ld_floats = static_cast<std::size_t>(columns);
    args.tokens = tokens;
    args.max_tile = table.max_tile;
    args.ahead = 2048;
    args.out = out.data();
    args.ld_out = static_cast<std::size_t>(rows);
    args.dequantise = info.dequantise;
    args.block_elements = static_cast<int>(info.block_elements);
    args.block_bytes = static_cast<int>(info.block_bytes);
    args.panel = panel.data() + (64 - reinterpret_cast<std::uintptr_t>(panel.data()) % 64) % 64;
  }
  void run() { kernel.run(args, 0, (rows + kGroupRows - 1) / kGroupRows); }

  const MatmulKernel& kernel;
  int rows;
  MatmulArgs args{};
  std::vector<std::byte> weights, panel;
  std::vector<float> floats, scales, scaled_sums, out;
  std::vector<std::int8_t> quants;
  std::vector<std::int32_t> sums;
};

void matmul(benchmark::State& state, const KernelTable* table, DType type, bool floats, int tokens) {
  const MatmulKernel& kernel = (floats ? table->float_kernels : table->int8_kernels)[static_cast<int>(type)];
  constexpr int kColumns = 1536, kRows = 8192;
  MatmulBench bench(*table, kernel, type, kRows, kColumns, tokens);
  for (auto _ : state) {
    bench.run();
    benchmark::ClobberMemory();
  }
  const auto steps = static_cast<double>(state.iterations());
  const double bytes = static_cast<double>(bench.args.row_stride) * kRows;
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9 * steps, benchmark::Counter::kIsRate);
  state.counters["GMAC/s"] = benchmark::Counter(1e-9 * kColumns * kRows * tokens * steps, benchmark::Counter::kIsRate);
}

void attention(benchmark::State& state, const KernelTable* table, KvFormat format, int queries) {
  constexpr int kHead = 64;
  ops::Plan plan;
  plan.kv_layers.push_back({1, kHead, 0});
  KvStore store = KvStore::reserve(plan, format, kPartition / kPageTokens).value();
  std::vector<float> head(kHead, 0.25f), out(kMaxQueries * kHead), scores(kMaxQueries * kPartition);
  const std::byte *keys[kPartition / kPageTokens], *values[kPartition / kPageTokens];
  for (int p = 0; p < kPartition; ++p) {
    table->append_key(format, head.data(), kHead, p % kPageTokens, store.keys(p / kPageTokens, 0, 0));
    table->append_value(format, head.data(), kHead, p % kPageTokens, store.values(p / kPageTokens, 0, 0));
  }
  float maximum[kMaxQueries], denominator[kMaxQueries];
  AttendArgs a{};
  for (int i = 0; i < kPartition / kPageTokens; ++i) {
    keys[i] = store.keys(i, 0, 0);
    values[i] = store.values(i, 0, 0);
  }
  a.format = format;
  a.head_size = kHead;
  a.key_pages = keys;
  a.value_pages = values;
  a.page_tokens = kPageTokens;
  a.count = kPartition;
  a.queries = queries;
  a.scale = 0.125f;
  a.maximum = maximum;
  a.denominator = denominator;
  a.scores = scores.data();
  for (int q = 0; q < queries; ++q) {
    a.query[q] = head.data();
    a.last[q] = kPartition - 1;
    a.out[q] = out.data() + q * kHead;
  }
  for (auto _ : state) {
    table->attend(a);
    benchmark::ClobberMemory();
  }
  state.counters["positions/s"] = benchmark::Counter(
      static_cast<double>(kPartition) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// Sums `mebibytes` of memory: what one row of activations can at most get out of weights of that size.
void read_bandwidth(benchmark::State& state) {
  const auto words = static_cast<std::size_t>(state.range(0)) * (1 << 20) / 8;
  const std::vector<std::uint64_t> memory(words, 1);
  for (auto _ : state) {
    std::uint64_t sum[8] = {};
    for (std::size_t i = 0; i + 8 <= words; i += 8) {
      for (std::size_t j = 0; j < 8; ++j) sum[j] += memory[i + j];
    }
    for (std::uint64_t& s : sum) benchmark::DoNotOptimize(s);
  }
  state.counters["GB/s"] = benchmark::Counter(
      8e-9 * static_cast<double>(words) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void register_all() {
  constexpr DType kTypes[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                              DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                              DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};
  for (const KernelTable* table : available_tables()) {
    for (const DType type : kTypes) {
      const bool floats = table->int8_kernels[static_cast<int>(type)].name == nullptr;
      for (const int tokens : {1, 4, 8, 16, 256}) {
        const std::string name =
            fmt::format("matmul/{}/{}/rows:{}", table->name, tensor::dtype_info(type).name, tokens);
        benchmark::RegisterBenchmark(name.c_str(), matmul, table, type, floats, tokens);
      }
    }
    for (const auto& [format, name] :
         {std::pair{KvFormat::f32, "f32"}, {KvFormat::f16, "f16"}, {KvFormat::q8_0, "q8_0"}}) {
      for (const int queries : {1, 3, 8}) {
        const std::string full = fmt::format("attend/{}/{}/queries:{}", table->name, name, queries);
        benchmark::RegisterBenchmark(full.c_str(), attention, table, format, queries);
      }
    }
  }
  benchmark::RegisterBenchmark("read", read_bandwidth)->Arg(1)->Arg(16)->Arg(96)->Arg(512);
}

}  // namespace
}  // namespace adze::cpu

int main(int argc, char** argv) {
  adze::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
