// The packed product as the program has it, by weight type: one row by prefetch distance and kind of pages, many rows
// by the largest tile. One thread.
//
//   lab-products [TYPE [KERNEL_SET [MEGABYTES [INPUTS]]]]     TYPE "" is every type
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/kernel_table.hpp"
#include "tensor/dtype.hpp"
#include "timing.hpp"

namespace adze::lab {
namespace {

using cpu::KernelTable;
using cpu::MatmulArgs;
using cpu::MatmulKernel;

constexpr tensor::DType kTypes[] = {tensor::DType::q4_0, tensor::DType::q4_1,  tensor::DType::q5_0, tensor::DType::q8_0,
                                    tensor::DType::q2_k, tensor::DType::q3_k,  tensor::DType::q4_k, tensor::DType::q5_k,
                                    tensor::DType::q6_k, tensor::DType::iq4_xs};

// A packed weight of about so many bytes and activations of ones, in tiles of at most max_tile rows: only the time
// is looked at, and it does not depend on the numbers.
class Product {
 public:
  Product(const KernelTable& table, tensor::DType type, int inputs, std::size_t bytes, bool huge)
      : table_(table),
        kernel_(table.int8_kernels[static_cast<int>(type)]),
        group_bytes_(kernel_.packed_bytes(inputs, {})),
        groups_(static_cast<int>(std::max<std::size_t>(1, bytes / group_bytes_))),
        inputs_(inputs),
        memory_(group_bytes_ * static_cast<std::size_t>(groups_), huge) {
    std::mt19937 random(1);
    auto* words = reinterpret_cast<std::uint32_t*>(memory_.data());
    for (std::size_t i = 0; i < this->bytes() / 4; ++i) words[i] = static_cast<std::uint32_t>(random()) & 0x3f3f3f3fu;
  }
  std::size_t bytes() const { return group_bytes_ * static_cast<std::size_t>(groups_); }
  double multiplications(int rows) const { return 16.0 * groups_ * inputs_ * rows; }

  Version version(std::string name, int rows, int max_tile, std::size_t ahead) {
    const std::size_t n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(inputs_);
    if (quants_.size() < n) {
      quants_.assign(n, 1);
      floats_.assign(n / 16 + 16, 1.0f);
      sums_.assign(n / 16 + 16, 32);
      out_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(groups_) * 16);
    }
    return {std::move(name), [this, rows, max_tile, ahead] {
              MatmulArgs a{};
              a.packed = memory_.data();
              a.ahead = ahead;
              a.rows = groups_ * 16;
              a.k = inputs_;
              a.quantised = {quants_.data(), floats_.data(), floats_.data(), sums_.data()};
              a.tokens = rows;
              a.max_tile = max_tile;
              a.out = out_.data();
              a.ld_out = static_cast<std::size_t>(groups_) * 16;
              kernel_.run(a, 0, groups_);
            }};
  }

 private:
  const KernelTable& table_;
  const MatmulKernel& kernel_;
  const std::size_t group_bytes_;
  const int groups_, inputs_;
  Memory memory_;
  std::vector<std::int8_t> quants_;
  std::vector<float> floats_, out_;
  std::vector<std::int32_t> sums_;
};

void print(const char* what, const std::vector<Version>& versions, double amount, int rounds) {
  std::printf("  %-28s", what);
  const std::vector<double> times = times_of(versions, rounds);
  for (std::size_t i = 0; i < versions.size(); ++i) {
    std::printf("  %s: %.1f", versions[i].name.c_str(), amount / times[i] * 1e-9);
  }
  std::puts("");
  std::fflush(stdout);
}

void measure(const KernelTable& table, tensor::DType type, std::size_t bytes, int inputs) {
  std::printf("%s, %s, %d inputs, %zu MB\n", std::string(tensor::dtype_info(type).name).c_str(), table.name, inputs,
              bytes >> 20);
  for (const bool huge : {true, false}) {
    Product product(table, type, inputs, bytes, huge);
    std::vector<Version> versions;
    for (const std::size_t ahead : {0, 1024, 2048, 4096, 8192, 16384}) {
      versions.push_back(product.version("+" + std::to_string(ahead), 1, table.max_tile, ahead));
    }
    print(huge ? "1 row, 2 MiB pages, GB/s" : "1 row, 4 KiB pages, GB/s", versions,
          static_cast<double>(product.bytes()), 9);
  }
  Product product(table, type, inputs, std::min<std::size_t>(bytes, 700 << 10), true);  // a thread's share of a layer
  for (const int rows : {12, 24, 96, 504}) {
    std::vector<Version> versions;
    for (int tile = table.max_tile; tile >= 2; tile -= tile > 6 ? 2 : 1) {
      versions.push_back(product.version("tile " + std::to_string(tile), rows, tile, 2048));
    }
    print((std::to_string(rows) + " rows, GMAC/s").c_str(), versions, product.multiplications(rows), 9);
  }
}

int run(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "", set = argc > 2 ? argv[2] : "";
  const auto table = cpu::choose_table(set);
  if (!table) {
    std::fprintf(stderr, "%s\n", table.error().message.c_str());
    return 2;
  }
  const std::size_t megabytes = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 96;
  const int inputs = argc > 4 ? static_cast<int>(std::strtol(argv[4], nullptr, 10)) : 2048;
  for (const tensor::DType type : kTypes) {
    if (!wanted.empty() && wanted != tensor::dtype_info(type).name) continue;
    measure(**table, type, megabytes << 20, inputs);
  }
  return 0;
}

}  // namespace
}  // namespace adze::lab

int main(int argc, char** argv) { return adze::lab::run(argc, argv); }
