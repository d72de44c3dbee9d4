// Other ways to lay out and to walk a packed Q4_0 weight for one row of activations, beside the program's: headers
// apart from the units or between them, one group of 16 rows at a time or two. One thread; all give the same sums.
//
//   lab-streams [MEGABYTES [INPUTS]]
#include <immintrin.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/kernels/source.hpp"
#include "timing.hpp"

namespace adze::cpu {
namespace {
#include "backend/cpu/simd/avx512.inl.h"
//
#include "backend/cpu/kernels/all.inl.h"

constexpr std::size_t kHeader = Header32<Q4_0>::kBytes, kUnit = kUnitBytes<4>;
constexpr int kPair = 2;  // blocks whose headers fill a line

enum class Order { apart, between };

// Where block b of a group is.
template <Order O>
struct Place {
  static std::size_t group_bytes(int blocks) { return static_cast<std::size_t>(blocks) * (kHeader + kUnit); }
  static ADZE_INLINE std::size_t header(int b, int) {
    const auto block = static_cast<std::size_t>(b);
    if constexpr (O == Order::apart) return block * kHeader;
    return block / kPair * kPair * (kHeader + kUnit) + block % kPair * kHeader;
  }
  static ADZE_INLINE std::size_t unit(int b, int blocks) {
    const auto block = static_cast<std::size_t>(b);
    if constexpr (O == Order::apart) return static_cast<std::size_t>(blocks) * kHeader + block * kUnit;
    return block / kPair * kPair * (kHeader + kUnit) + kPair * kHeader + block % kPair * kUnit;
  }
};

template <Order O, int Groups>
void one_row(const std::byte* packed, int groups, int k, const QuantisedRows& x, std::size_t ahead, float* out) {
  const int blocks = k / 32;
  const std::size_t group_bytes = Place<O>::group_bytes(blocks);
  for (int g = 0; g + Groups <= groups; g += Groups) {
    V acc[Groups];
    for (V& v : acc) v = zero();
    for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 2
      for (int i = 0; i < Groups; ++i) {
        const std::byte* group = packed + static_cast<std::size_t>(g + i) * group_bytes;
        const std::byte* unit = group + Place<O>::unit(b, blocks);
#pragma GCC unroll 4
        for (std::size_t line = 0; line < kUnit; line += 64) __builtin_prefetch(unit + ahead + line);
        I q[8];
        load_unit<4>(unit, q);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) q[j] = Q4_0::value(q[j]);
        V d = zero(), m = zero();
        Header32<Q4_0>::load(group + Place<O>::header(b, blocks), d, m);
        multiply_block32<ClassOf<Q4_0>, 1>(q, d, m, x, b, kOffsetOf<Q4_0>, acc + i);
      }
    }
    for (int i = 0; i < Groups; ++i) store(out + 16 * (g + i), acc[i]);
  }
}

// The bytes of one order in the other.
void reorder(const std::byte* apart, std::byte* between, int groups, int blocks) {
  const std::size_t bytes = Place<Order::apart>::group_bytes(blocks);
  for (int g = 0; g < groups; ++g, apart += bytes, between += bytes) {
    for (int b = 0; b < blocks; ++b) {
      std::memcpy(between + Place<Order::between>::header(b, blocks), apart + Place<Order::apart>::header(b, blocks),
                  kHeader);
      std::memcpy(between + Place<Order::between>::unit(b, blocks), apart + Place<Order::apart>::unit(b, blocks),
                  kUnit);
    }
  }
}

int run(std::size_t bytes, int k) {
  const KernelTable* table = nullptr;
  for (const KernelTable* t : available_tables()) {
    if (std::strcmp(t->name, "avx512_vnni") == 0) table = t;
  }
  if (table == nullptr || k % 64 != 0) {
    std::fputs("this needs AVX-512 with VNNI, and inputs in multiples of 64\n", stderr);
    return 2;
  }
  const int blocks = k / 32;
  const std::size_t group_bytes = Place<Order::apart>::group_bytes(blocks);
  const int groups = static_cast<int>(bytes / group_bytes) & ~1;
  const std::size_t size = group_bytes * static_cast<std::size_t>(groups);
  lab::Memory apart(size, true), between(size, true);
  std::mt19937 random(1);
  auto* words = reinterpret_cast<std::uint32_t*>(apart.data());
  for (std::size_t i = 0; i < size / 4; ++i) words[i] = static_cast<std::uint32_t>(random()) & 0x3fff3fffu;
  reorder(apart.data(), between.data(), groups, blocks);

  const auto n = static_cast<std::size_t>(k);
  std::vector<std::int8_t> quants(n, 1);
  std::vector<float> scales(n / 32, 1.0f);
  std::vector<std::int32_t> sums(n / 32, 32);
  const QuantisedRows x{quants.data(), scales.data(), scales.data(), sums.data()};
  std::vector<std::vector<float>> out(6, std::vector<float>(static_cast<std::size_t>(groups) * 16));
  std::vector<lab::Version> versions;
  for (const std::size_t ahead : {2048, 8192}) {
    const std::string by = ", +" + std::to_string(ahead);
    versions.push_back({"the program's" + by, [&, ahead] {
                          MatmulArgs a{};
                          a.packed = apart.data();
                          a.ahead = ahead;
                          a.rows = groups * 16;
                          a.k = k;
                          a.quantised = x;
                          a.tokens = 1;
                          a.max_tile = 1;
                          a.out = out[0].data();
                          a.ld_out = out[0].size();
                          table->int8_kernels[static_cast<int>(tensor::DType::q4_0)].run(a, 0, groups);
                        }});
    const auto add = [&](const char* name, auto kernel, const std::byte* from, std::size_t to) {
      versions.push_back(
          {name + by, [&, kernel, from, to, ahead] { kernel(from, groups, k, x, ahead, out[to].data()); }});
    };
    add("headers apart", one_row<Order::apart, 1>, apart.data(), 1);
    add("headers between", one_row<Order::between, 1>, between.data(), 2);
    add("headers apart, two groups", one_row<Order::apart, 2>, apart.data(), 3);
    add("headers between, two groups", one_row<Order::between, 2>, between.data(), 4);
  }
  const std::vector<double> times = lab::times_of(versions, 11);
  std::printf("Q4_0, 1 row, %d inputs, %zu MB, GB/s\n", k, size >> 20);
  for (std::size_t i = 0; i < versions.size(); ++i) {
    std::printf("  %-36s %6.1f\n", versions[i].name.c_str(), static_cast<double>(size) / times[i] * 1e-9);
  }
  for (std::size_t i = 1; i < 5; ++i) {
    if (std::memcmp(out[i].data(), out[0].data(), out[0].size() * sizeof(float)) != 0) {
      std::fprintf(stderr, "version %zu gives other sums\n", i);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace adze::cpu

int main(int argc, char** argv) {
  const std::size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 96;
  const int inputs = argc > 2 ? static_cast<int>(std::strtol(argv[2], nullptr, 10)) : 2048;
  return adze::cpu::run(megabytes << 20, inputs);
}
