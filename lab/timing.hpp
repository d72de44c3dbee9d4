// What the lab's programs share: memory of a kind of pages, and times of versions that run in turns.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace adze::lab {

// Zeroed bytes at a multiple of 2 MiB, in pages of 2 MiB (where the system has them) or of 4 KiB.
class Memory {
 public:
  Memory(std::size_t bytes, bool huge) : size_(bytes + kHuge) {
    raw_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::madvise(raw_, size_, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::munmap(raw_, size_); }
  std::byte* data() const {
    const auto at = reinterpret_cast<std::uintptr_t>(raw_);
    return static_cast<std::byte*>(raw_) + ((at + kHuge - 1) / kHuge * kHuge - at);
  }

 private:
  static constexpr std::size_t kHuge = std::size_t{2} << 20;
  std::size_t size_;
  void* raw_;
};

struct Version {
  std::string name;
  std::function<void()> run;
};

// The median seconds of each version, all of them in turns; `rounds` after one that warms up.
inline std::vector<double> times_of(const std::vector<Version>& versions, int rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> seconds(versions.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < versions.size(); ++i) {
      const std::size_t v = (i + static_cast<std::size_t>(round + 1)) % versions.size();
      const auto begin = Clock::now();
      versions[v].run();
      const double time = std::chrono::duration<double>(Clock::now() - begin).count();
      if (round >= 0) seconds[v].push_back(time);
    }
  }
  std::vector<double> medians;
  for (auto& of_version : seconds) {
    std::ranges::sort(of_version);
    medians.push_back(of_version[of_version.size() / 2]);
  }
  return medians;
}

}  // namespace adze::lab
