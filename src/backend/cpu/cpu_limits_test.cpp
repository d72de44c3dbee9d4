// The limits are rates of this moment, so what is checked is that the loops do what they say they do.
#include "backend/cpu/cpu_limits.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/cpu/cpu_features.hpp"

namespace adze::cpu {
namespace {

TEST(Limits, ReadsEveryByte) {
  std::vector<std::int32_t> words(3 * 64);  // three lines for each stream
  for (const KernelTable* table : available_tables()) {
    const auto all = [&] {
      return table->limits.read_all(reinterpret_cast<const std::byte*>(words.data()), words.size() * 4);
    };
    const std::int32_t before = all();
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] ^= 1 << (i % 31);
      EXPECT_NE(all(), before) << table->name << ", word " << i;
      words[i] ^= 1 << (i % 31);
    }
  }
}

TEST(Limits, MultipliesWhatItCounts) {
  for (const KernelTable* table : available_tables()) {
    std::array<std::int32_t, 16> bytes;
    std::array<float, 16> floats, out;
    bytes.fill(0x01010101);
    floats.fill(1.0f);
    const std::int64_t done = table->limits.multiply_bytes(bytes.data(), 5, out.data());
    EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0.0f), static_cast<float>(done)) << table->name;
    EXPECT_GT(done, 0);
    const std::int64_t of_floats = table->limits.multiply_floats(floats.data(), 5, out.data());
    EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0.0f), static_cast<float>(of_floats)) << table->name;
  }
}

TEST(Limits, AreRatesOfAnyMachine) {
  for (const int threads : {1, 2}) {
    ThreadTeam team(threads);
    const KernelTable& table = *available_tables().front();
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{3} << 20}) {
      const Result<double> rate = measure_read_rate(table, team, bytes);
      ASSERT_TRUE(rate) << rate.error().message;
      EXPECT_TRUE(std::isfinite(*rate) && *rate > 1e6) << *rate;
    }
    const backend::MultiplyRates rates = measure_multiply_rates(table, team);
    EXPECT_TRUE(std::isfinite(rates.bytes) && rates.bytes > 1e6) << rates.bytes;
    EXPECT_TRUE(std::isfinite(rates.floats) && rates.floats > 1e6) << rates.floats;
  }
}

TEST(Limits, UnknownKernelSet) {
  EXPECT_FALSE(backend::measure_read_rate("mmx", 1, 4096));
  EXPECT_FALSE(backend::measure_multiply_rates("mmx", 1));
}

}  // namespace
}  // namespace adze::cpu
