#include "backend/cpu/cpu_limits.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>

#include "backend/cpu/arena.hpp"

namespace adze::cpu {
namespace {

constexpr std::uint64_t kMaxMeasuredBytes = 384ull << 20;
constexpr std::uint64_t kLeastPassBytes = 8ull << 20;  // a pass over less is repeated: the clock and the team cost time
constexpr int kPasses = 8;
constexpr double kLeastSeconds = 0.02;  // the first milliseconds run at another clock

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The best rate that `pass` (amount done, in any unit) reaches.
template <class Pass>
double best_rate(Pass&& pass) {
  double best = 0;
  const double start = seconds();
  for (int i = 0; i < kPasses || seconds() - start < kLeastSeconds; ++i) {
    const double begin = seconds();
    const double done = pass();
    best = std::max(best, done / (seconds() - begin));
  }
  return best;
}

}  // namespace

Result<double> measure_read_rate(const KernelTable& table, ThreadTeam& team, std::uint64_t working_set) {
  const auto members = static_cast<std::size_t>(team.size());
  constexpr std::size_t kPage = 4096;  // shares begin at pages: a page is first touched by the member that reads it
  const std::size_t wanted = std::min(working_set, kMaxMeasuredBytes);
  const std::size_t share = std::max<std::size_t>(wanted / members / kPage, 1) * kPage;
  ADZE_TRY(Arena arena, Arena::reserve(share * members, true));
  std::byte* const pages = arena.take<std::byte>(share * members);
  team.run([&](int member) { std::memset(pages + static_cast<std::size_t>(member) * share, 1, share); });
  const auto repeats = static_cast<int>(std::max<std::uint64_t>(kLeastPassBytes / (share * members), 1));
  std::atomic<std::int32_t> sink{0};
  return best_rate([&] {
    team.run([&](int member) {
      const std::byte* mine = pages + static_cast<std::size_t>(member) * share;
      for (int i = 0; i < repeats; ++i) sink.fetch_xor(table.limits.read_all(mine, share), std::memory_order_relaxed);
    });
    return static_cast<double>(share) * static_cast<double>(members) * repeats;
  });
}

backend::MultiplyRates measure_multiply_rates(const KernelTable& table, ThreadTeam& team) {
  constexpr std::int64_t kRounds = 20'000;
  std::array<std::int32_t, 16> bytes;
  std::array<float, 16> floats;
  bytes.fill(0x01020304);
  floats.fill(1e-6f);
  const auto rate = [&](auto multiply, const auto& operands) {
    return best_rate([&] {
      std::atomic<std::int64_t> done{0};
      team.run([&](int) {
        std::array<float, 16> out;
        done.fetch_add(multiply(operands.data(), kRounds, out.data()), std::memory_order_relaxed);
      });
      return static_cast<double>(done.load());
    });
  };
  return {.bytes = rate(table.limits.multiply_bytes, bytes), .floats = rate(table.limits.multiply_floats, floats)};
}

}  // namespace adze::cpu
