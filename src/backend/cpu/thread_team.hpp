// A persistent team of threads that runs one function on all members and meets at barriers. The caller of run() is
// member 0. One caller at a time. How members wait, with the figures behind each rule: docs/design/0011-threads.md.
//
// A barrier of two threads that both run costs about 0.2 us, a sleeping hand-over 25, and beside a busy neighbour a
// whole time slice. So members spin for about the time that is lost by going to sleep, and sleep when it grows longer:
// an idle team uses no CPU. Where the team has more threads than the process has CPUs, or the system has put another
// member on the same CPU, who is waited for needs the CPU: members yield instead of spinning, as long as nobody but the
// team takes what they yield, and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace adze::cpu {

class ThreadTeam {
 public:
  // The CPUs that each member may run on, as place_threads() chooses them; none: all that the caller may. Member 0 is
  // the caller's thread, whose affinity is never touched.
  explicit ThreadTeam(int threads, std::span<const std::vector<int>> cpus_of_members = {});
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int size() const { return members_.load(std::memory_order_relaxed); }
  // Members of the jobs that follow, 1 to what the team was made with; the others go on waiting. Between jobs.
  void resize(int members);

  // Calls work(member) on every member, 0 on the calling thread; returns when all have returned.
  template <class Work>
  void run(Work&& work) {
    start([](void* context, int member) { (*static_cast<std::remove_reference_t<Work>*>(context))(member); }, &work);
  }

  // Every member must call it, inside run(). What any member wrote before, every member sees after.
  void barrier();
  // Passed so far. Stands still while a member has not arrived at the next one.
  std::uint32_t barriers() const { return rounds_.count.load(std::memory_order_relaxed); }
  // Times that a member has gone to sleep.
  std::uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }

 private:
  using Function = void (*)(void* context, int member);
  // A count that members wait for to move on.
  struct alignas(64) Signal {
    std::atomic<std::uint32_t> count{0};
    std::atomic<int> sleepers{0};
    void move_to(std::uint32_t value);
  };

  void start(Function function, void* context);
  void serve(int member);
  // Returns when the count is no longer `seen`.
  void wait_while(Signal& signal, std::uint32_t seen);
  void spin_while(const Signal& signal, std::uint32_t seen) const;
  bool crowded() const { return size() > cpus_; }
  bool shares_cpu() const;
  void yield_while(const Signal& signal, std::uint32_t seen);
  void sleep_while(Signal& signal, std::uint32_t seen);

  const int most_;
  std::atomic<int> members_;  // of the current job; changes between jobs
  const int cpus_;            // that the process may use
  Function function_ = nullptr;
  void* context_ = nullptr;
  // Jobs started, and in the low bits how many members the last one has: who was left out of some may wake late, and
  // must know whether this one is for it.
  Signal jobs_;
  Signal rounds_;  // barriers completed
  struct alignas(64) Place {
    std::atomic<int> cpu{-1};  // where the member was when it came to its last barrier
  };
  const std::unique_ptr<Place[]> places_;
  alignas(64) std::atomic<int> arrived_{0};  // at the current barrier
  alignas(64) std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> sleeps_{0};
  std::atomic<int> waits_without_yields_{0};  // to come, in a crowded team whose yields others took
  std::atomic<int> last_without_yields_{0};   // how many they were last time
  std::vector<std::thread> threads_;
};

// [begin, end) of `count` items for one of `members`, contiguous and near-equal.
struct Share {
  int begin, end;
};
inline Share share_of(int count, int member, int members) {
  const auto at = [&](int m) { return static_cast<int>(static_cast<std::int64_t>(count) * m / members); };
  return {at(member), at(member + 1)};
}

// Who shares some work: the whole team, or a member that has all of it to itself.
struct Crew {
  int member, members;
  bool alone = false;
};

}  // namespace adze::cpu
