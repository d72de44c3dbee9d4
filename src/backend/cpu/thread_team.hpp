// A persistent team of threads that runs one function on all members and meets at barriers. Members spin while work
// keeps coming (a barrier costs about 0.2 us, a sleeping hand-over 25), yield when a wait grows long (a busy neighbour)
// and sleep when it grows longer still. In a team of more threads than the process has CPUs they sleep almost at once:
// who is waited for needs the CPU. The caller of run() is member 0. One caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace adze::cpu {

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int size() const { return size_; }

  // Calls work(member) on every member, 0 on the calling thread; returns when all have returned.
  template <class Work>
  void run(Work&& work) {
    start([](void* context, int member) { (*static_cast<std::remove_reference_t<Work>*>(context))(member); }, &work);
  }

  // Every member must call it, inside run(). What any member wrote before, every member sees after.
  void barrier();
  // Passed so far. Stands still while a member has not arrived at the next one.
  std::uint32_t barriers() const { return round_.load(std::memory_order_relaxed); }

 private:
  using Function = void (*)(void* context, int member);
  void start(Function function, void* context);
  void serve(int member);
  // Returns when `word` is no longer `seen`.
  void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen) const;

  const int size_;
  const int spins_, yields_;  // of a member that waits, before it goes to sleep
  Function function_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> job_{0};    // number of jobs started; members wait for it to change
  alignas(64) std::atomic<int> arrived_{0};          // at the current barrier
  alignas(64) std::atomic<std::uint32_t> round_{0};  // barriers completed
  alignas(64) std::atomic<bool> stopping_{false};
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
