#include "backend/cpu/thread_team.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <utility>

#include "backend/cpu/cpu_topology.hpp"
#include "base/check.hpp"
#include "base/limits.hpp"

namespace adze::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Of a member that waits, before it goes to sleep. Longer than the gaps inside a pass and most between two tokens; a
// few times what sleeping costs where nobody else wants the CPU. Beside neighbours that never rest, 100 us lets two
// members fall into a step in which each wakes up to find the other asleep; 3 ms halve the speed.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr int kPausesPerLook = 16;  // at the clock: 0.2 to 2 us
// Of this, before a member looks whether another one of its team wants the same CPU.
constexpr auto kSpinUnaware = std::chrono::microseconds(20);

// Of a member that shares its CPU with others of its team. A yield that took longer than kForeign went to somebody
// outside the team, for a slice of time: then there are none for some waits, twice as many each time that the next one
// ends like this again.
constexpr int kYields = 20;
constexpr auto kForeign = std::chrono::milliseconds(1);
constexpr int kFewWaits = 16, kManyWaits = 4096;

// Low bits of jobs_: the members of the job.
constexpr std::uint32_t kJob = 1u << 10;
static_assert(limits::kMaxThreads < kJob);

thread_local int this_member = 0;  // of the team that the thread is at work for

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not std::atomic::wait: libstdc++ yields a few times before it sleeps, and beside a busy neighbour each costs a slice.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// Both sides of a sleep are sequentially consistent: the one who advances counts first and then looks for sleepers, the
// one who sleeps says so first and then looks at the count, so that one of them sees the other.
void ThreadTeam::Signal::move_to(std::uint32_t value) {
  count.store(value, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(count);
}

ThreadTeam::ThreadTeam(int threads, std::span<const std::vector<int>> cpus_of_members)
    : most_(threads),
      members_(threads),
      cpus_(usable_cpus()),
      places_(std::make_unique<Place[]>(static_cast<std::size_t>(threads))) {
  ADZE_CHECK(threads >= 1, "{} threads", threads);
  ADZE_CHECK(cpus_of_members.empty() || cpus_of_members.size() == static_cast<std::size_t>(threads),
             "places for {} of {} threads", cpus_of_members.size(), threads);
  for (int member = 1; member < threads; ++member) {
    std::vector<int> cpus;
    if (!cpus_of_members.empty()) cpus = cpus_of_members[static_cast<std::size_t>(member)];
    threads_.emplace_back([this, member, cpus = std::move(cpus)] {
      if (!cpus.empty()) run_this_thread_on(cpus);
      serve(member);
    });
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true, std::memory_order_relaxed);
  jobs_.move_to(jobs_.count.load(std::memory_order_relaxed) + kJob);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::resize(int members) {
  ADZE_CHECK(members >= 1 && members <= most_, "{} of {} members", members, most_);
  members_.store(members, std::memory_order_relaxed);
}

void ThreadTeam::start(Function function, void* context) {
  const int members = size();
  if (members == 1) {
    function(context, 0);
    return;
  }
  function_ = function;
  context_ = context;
  const int outer = std::exchange(this_member, 0);
  const std::uint32_t number = jobs_.count.load(std::memory_order_relaxed) / kJob + 1;
  jobs_.move_to(number * kJob + static_cast<std::uint32_t>(members));
  function(context, 0);
  barrier();  // the members' last: nobody touches the job after it
  this_member = outer;
}

void ThreadTeam::serve(int member) {
  this_member = member;
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(jobs_, seen);
    seen = jobs_.count.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (static_cast<std::uint32_t>(member) >= seen % kJob) continue;
    function_(context_, member);
    barrier();
  }
}

void ThreadTeam::barrier() {
  const int members = size();  // before it arrives: afterwards the job may end, and the team be resized
  const std::uint32_t round = rounds_.count.load(std::memory_order_relaxed);
  if (members == 1) {
    rounds_.count.store(round + 1, std::memory_order_relaxed);
    return;
  }
  places_[static_cast<std::size_t>(this_member)].cpu.store(::sched_getcpu(), std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 != members) {
    wait_while(rounds_, round);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  rounds_.move_to(round + 1);
}

void ThreadTeam::wait_while(Signal& signal, std::uint32_t seen) {
  if (!crowded()) spin_while(signal, seen);
  if (signal.count.load(std::memory_order_acquire) != seen) return;
  if (crowded() || shares_cpu()) yield_while(signal, seen);
  if (signal.count.load(std::memory_order_acquire) == seen) sleep_while(signal, seen);
}

void ThreadTeam::spin_while(const Signal& signal, std::uint32_t seen) const {
  Clock::time_point begin{};
  bool looked = false;
  for (int pauses = 1; signal.count.load(std::memory_order_acquire) == seen; ++pauses) {
    relax();
    if (pauses % kPausesPerLook != 0) continue;
    const Clock::time_point now = Clock::now();
    if (begin == Clock::time_point{}) begin = now;
    if (now - begin >= kSpin) return;
    if (looked || now - begin < kSpinUnaware) continue;
    if (shares_cpu()) return;
    looked = true;
  }
}

bool ThreadTeam::shares_cpu() const {
  const int cpu = ::sched_getcpu();
  const int members = size();
  for (int member = 0; member < members; ++member) {
    if (member == this_member) continue;
    if (places_[static_cast<std::size_t>(member)].cpu.load(std::memory_order_relaxed) == cpu) return true;
  }
  return false;
}

void ThreadTeam::yield_while(const Signal& signal, std::uint32_t seen) {
  if (waits_without_yields_.load(std::memory_order_relaxed) > 0) {
    waits_without_yields_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  Clock::time_point before = Clock::now();
  for (int yields = 0; yields < kYields && signal.count.load(std::memory_order_acquire) == seen; ++yields) {
    std::this_thread::yield();
    const Clock::time_point after = Clock::now();
    if (after - before > kForeign) {
      const int waits = std::clamp(2 * last_without_yields_.load(std::memory_order_relaxed), kFewWaits, kManyWaits);
      last_without_yields_.store(waits, std::memory_order_relaxed);
      waits_without_yields_.store(waits, std::memory_order_relaxed);
      return;
    }
    before = after;
  }
  last_without_yields_.store(0, std::memory_order_relaxed);
}

void ThreadTeam::sleep_while(Signal& signal, std::uint32_t seen) {
  signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (signal.count.load(std::memory_order_seq_cst) == seen) {
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    futex_wait(signal.count, seen);
  }
  signal.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace adze::cpu
