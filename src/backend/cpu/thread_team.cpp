#include "backend/cpu/thread_team.hpp"

#include <sched.h>

#include "backend/cpu/cpu_features.hpp"
#include "base/check.hpp"

namespace adze::cpu {
namespace {

// About 20 us of polite spinning before the first yield, on processors where a pause takes 40-140 cycles.
constexpr int kSpins = 500;
// Yields (each at least a system call) before a member that waits goes to sleep: a few milliseconds, so that the gap
// between two tokens, sampling included, does not put the team to sleep. Nor does a barrier where one thread was held
// up: sleeping after 50 yields made two threads beside busy neighbours 0.75 times as fast.
constexpr int kYields = 2000;
// The same where threads share CPUs: 8 on 2 generate twice as fast as with the figures above.
constexpr int kSpinsCrowded = 0, kYieldsCrowded = 20;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Adds one and wakes whoever waits for that. A full fence (seq_cst, not release): notify_all looks for sleepers, and
// must not look before they can see the new value.
void advance(std::atomic<std::uint32_t>& word) {
  word.fetch_add(1, std::memory_order_seq_cst);
  word.notify_all();
}

}  // namespace

ThreadTeam::ThreadTeam(int threads)
    : size_(threads),
      spins_(threads <= usable_cpus() ? kSpins : kSpinsCrowded),
      yields_(threads <= usable_cpus() ? kYields : kYieldsCrowded) {
  ADZE_CHECK(threads >= 1, "{} threads", threads);
  for (int member = 1; member < threads; ++member) threads_.emplace_back([this, member] { serve(member); });
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true, std::memory_order_relaxed);
  advance(job_);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::start(Function function, void* context) {
  if (size_ == 1) {
    function(context, 0);
    return;
  }
  function_ = function;
  context_ = context;
  advance(job_);
  function(context, 0);
  barrier();  // the members' last: nobody touches the job after it
}

void ThreadTeam::serve(int member) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(job_, seen);
    ++seen;
    if (stopping_.load(std::memory_order_relaxed)) return;
    function_(context_, member);
    barrier();
  }
}

void ThreadTeam::wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen) const {
  for (int spins = 0; word.load(std::memory_order_acquire) == seen; ++spins) {
    if (spins < spins_) {
      relax();
    } else if (spins < spins_ + yields_) {
      ::sched_yield();
    } else {
      word.wait(seen, std::memory_order_acquire);
    }
  }
}

void ThreadTeam::barrier() {
  const std::uint32_t round = round_.load(std::memory_order_relaxed);
  if (size_ == 1) {
    round_.store(round + 1, std::memory_order_relaxed);
    return;
  }
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 != size_) {
    wait_while(round_, round);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  advance(round_);
}

}  // namespace adze::cpu
