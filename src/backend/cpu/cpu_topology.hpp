// Which CPUs the process may use and how they hang together, how many threads that asks for, and where a team's members
// are placed. Facts come from the system's files below a root directory, so that tests can bring their own machine.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/cgroup_quota.hpp"

namespace adze::cpu {

struct Cpu {
  int id = 0;
  int core = 0;  // the lowest id of the CPUs that share its core
  int node = 0;  // of memory
};

struct CpuTopology {
  std::vector<Cpu> cpus;  // that the process may run on, by id; never empty
  int online = 0;         // CPUs of the machine; more than cpus.size() where the affinity mask is narrower
  std::optional<CpuQuota> quota;

  int cores() const;  // with at least one of the CPUs
  int nodes() const;
};

// Of this machine and process. `allowed`: the ids of the affinity mask. What the files below `root` do not tell is
// taken to be plain: every CPU a core of its own, one node, no quota.
CpuTopology read_topology(const std::filesystem::path& root, std::span<const int> allowed);
CpuTopology read_topology();

// CPUs that the process can keep busy: those of its affinity mask, fewer where a quota says so (rounded down), at
// least 1, at most limits::kMaxThreads.
int usable_cpus(const CpuTopology& topology);
int usable_cpus();

// How many compute threads a model gets where the user does not say: one per core, within the quota.
struct ThreadChoice {
  int threads = 1;
  std::string reason;  // for people: "one per core; 16 CPUs share 8 cores"
};
ThreadChoice choose_threads(const CpuTopology& topology);

// The CPUs that each member of a team may run on, member 0 included; empty: all of them, as the system likes. On a
// machine of several nodes members stay on one node each: a team that fits, a thread per core, is all on one, on
// `near`, where the caller runs, if that is large enough; a larger one is spread in order, so that members with
// neighbouring shares are on one node. Which CPU of a node is the system's choice. Nothing is placed where the affinity
// mask is narrower than the machine, for then somebody else places threads, nor where the team has more threads than
// CPUs to use.
std::vector<std::vector<int>> place_threads(const CpuTopology& topology, int threads, int near);

// The node of the CPU that the calling thread runs on.
int current_node(const CpuTopology& topology);

// place_threads() near the calling thread.
std::vector<std::vector<int>> place_threads(const CpuTopology& topology, int threads);

// Restricts the calling thread; a hint: where the system refuses, it stays where it was.
void run_this_thread_on(std::span<const int> cpus);

// "0-2,7" as the system's files list CPUs: {0, 1, 2, 7}. Nothing where the text is no such list.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace adze::cpu
