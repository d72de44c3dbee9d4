#include "backend/cpu/thread_team.hpp"

#include <sched.h>

#include "base/check.hpp"

namespace adze::cpu {
namespace {

// About 20 us of polite spinning before the first yield, on processors where a pause takes 40-140 cycles.
constexpr int kSpinsBeforeYield = 500;
// Yields (each at least a system call) before an idle member goes to sleep: a few milliseconds, so that the gap between
// two tokens, sampling included, does not put the team to sleep.
constexpr int kYieldsBeforeSleep = 2000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) : size_(threads) {
  ADZE_CHECK(threads >= 1, "{} threads", threads);
  for (int member = 1; member < threads; ++member) threads_.emplace_back([this, member] { serve(member); });
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true, std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::start(Function function, void* context) {
  if (size_ == 1) {
    function(context, 0);
    return;
  }
  function_ = function;
  context_ = context;
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  function(context, 0);
  barrier();  // the members' last: nobody touches the job after it
}

void ThreadTeam::serve(int member) {
  std::uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (job_.load(std::memory_order_acquire) == seen) {
      ++spins;
      if (spins < kSpinsBeforeYield) {
        relax();
      } else if (spins < kSpinsBeforeYield + kYieldsBeforeSleep) {
        ::sched_yield();
      } else {
        job_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stopping_.load(std::memory_order_relaxed)) return;
    function_(context_, member);
    barrier();
  }
}

void ThreadTeam::barrier() {
  if (size_ == 1) return;
  const std::uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
    if (spins < kSpinsBeforeYield) {
      relax();
    } else {
      ::sched_yield();
    }
  }
}

}  // namespace adze::cpu
