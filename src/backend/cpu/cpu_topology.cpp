#include "backend/cpu/cpu_topology.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <thread>

#include "base/limits.hpp"

namespace adze::cpu {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCpus = 1 << 16;  // of any system: what a list may name

std::vector<int> read_cpu_list(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  stream >> text;
  return parse_cpu_list(text);
}

// A mask of the system's, as large as it needs: machines can have more CPUs than a plain cpu_set_t holds.
class CpuMask {
 public:
  explicit CpuMask(int cpus) : set_(CPU_ALLOC(static_cast<std::size_t>(cpus))), bytes_(CPU_ALLOC_SIZE(cpus)) {
    if (set_ != nullptr) CPU_ZERO_S(bytes_, set_);
  }
  CpuMask(const CpuMask&) = delete;
  CpuMask& operator=(const CpuMask&) = delete;
  ~CpuMask() { CPU_FREE(set_); }

  explicit operator bool() const { return set_ != nullptr; }
  cpu_set_t* set() { return set_; }
  std::size_t bytes() const { return bytes_; }
  bool has(int cpu) const { return CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes_, set_); }
  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes_, set_); }

 private:
  cpu_set_t* set_;
  std::size_t bytes_;
};

std::vector<int> allowed_cpus() {
  for (int most = 1024; most <= kMostCpus; most *= 4) {
    CpuMask mask(most);
    if (!mask || ::sched_getaffinity(0, mask.bytes(), mask.set()) != 0) continue;  // too small: once more
    std::vector<int> cpus;
    for (int cpu = 0; cpu < most; ++cpu) {
      if (mask.has(cpu)) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

template <class Of>
int distinct(const std::vector<Cpu>& cpus, Of of) {
  std::set<int> seen;
  for (const Cpu& cpu : cpus) seen.insert(of(cpu));
  return static_cast<int>(seen.size());
}

std::vector<int> cpus_where(const CpuTopology& topology, auto condition) {
  std::vector<int> ids;
  for (const Cpu& cpu : topology.cpus) {
    if (condition(cpu)) ids.push_back(cpu.id);
  }
  return ids;
}

// The node of each core, nodes in order.
std::vector<int> nodes_of_cores(const CpuTopology& topology) {
  std::set<std::pair<int, int>> cores;
  for (const Cpu& cpu : topology.cpus) cores.emplace(cpu.node, cpu.core);
  std::vector<int> nodes;
  for (const auto& [node, core] : cores) nodes.push_back(node);
  return nodes;
}

// The node that a team of this size fits on, a thread per core: the near one, else the smallest that is large enough.
std::optional<int> node_for(const std::vector<int>& nodes, int threads, int near) {
  const auto size = [&](int node) { return std::ranges::count(nodes, node); };
  if (size(near) >= threads) return near;
  std::optional<int> best;
  for (const int node : nodes) {
    if (size(node) >= threads && (!best || size(node) < size(*best))) best = node;
  }
  return best;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> ids;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    int last = first;
    if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    if (parsed.ec != std::errc{} || first < 0 || last < first || last >= kMostCpus) return {};
    for (int id = first; id <= last; ++id) ids.push_back(id);
    at = parsed.ptr;
    if (at == end) break;
    if (*at != ',' || at + 1 == end) return {};
    ++at;
  }
  return ids;
}

int CpuTopology::cores() const {
  return distinct(cpus, [](const Cpu& cpu) { return cpu.core; });
}
int CpuTopology::nodes() const {
  return distinct(cpus, [](const Cpu& cpu) { return cpu.node; });
}

CpuTopology read_topology(const fs::path& root, std::span<const int> allowed) {
  const fs::path system = root / "sys/devices/system";
  CpuTopology topology;
  for (const int id : allowed) {
    const std::vector<int> siblings =
        read_cpu_list(system / fmt::format("cpu/cpu{}/topology/thread_siblings_list", id));
    topology.cpus.push_back({id, siblings.empty() ? id : siblings.front(), 0});
  }
  if (topology.cpus.empty()) topology.cpus.push_back({});
  for (const int node : read_cpu_list(system / "node/online")) {
    for (const int id : read_cpu_list(system / fmt::format("node/node{}/cpulist", node))) {
      const auto cpu = std::ranges::find(topology.cpus, id, &Cpu::id);
      if (cpu != topology.cpus.end()) cpu->node = node;
    }
  }
  const auto online = read_cpu_list(system / "cpu/online").size();
  topology.online = static_cast<int>(std::max(online, topology.cpus.size()));
  topology.quota = read_cpu_quota(root);
  return topology;
}

CpuTopology read_topology() {
  std::vector<int> allowed = allowed_cpus();
  if (allowed.empty()) {
    for (unsigned id = 0; id < std::thread::hardware_concurrency(); ++id) allowed.push_back(static_cast<int>(id));
  }
  return read_topology("/", allowed);
}

namespace {

int within_quota(const CpuTopology& topology, int cpus) {
  if (topology.quota && topology.quota->cpus < cpus) cpus = static_cast<int>(topology.quota->cpus);
  return std::clamp(cpus, 1, limits::kMaxThreads);
}

}  // namespace

int usable_cpus(const CpuTopology& topology) { return within_quota(topology, static_cast<int>(topology.cpus.size())); }
int usable_cpus() { return usable_cpus(read_topology()); }

ThreadChoice choose_threads(const CpuTopology& topology) {
  const int cores = topology.cores(), threads = within_quota(topology, cores);
  if (threads < cores && threads < limits::kMaxThreads) {
    return {threads,
            fmt::format("the control group allows {:.4g} CPUs ({})", topology.quota->cpus, topology.quota->from)};
  }
  const auto cpus = static_cast<int>(topology.cpus.size());
  std::string reason = "one per core";
  if (cpus > cores) reason += fmt::format("; {} CPUs share {} cores", cpus, cores);
  if (cpus < topology.online) {
    reason += fmt::format("; the affinity mask allows {} of {} CPUs", cpus, topology.online);
  }
  if (threads < cores) reason += fmt::format("; no more than {} are possible", limits::kMaxThreads);
  return {threads, reason};
}

std::vector<std::vector<int>> place_threads(const CpuTopology& topology, int threads, int near) {
  const bool narrowed = static_cast<int>(topology.cpus.size()) < topology.online;
  if (topology.nodes() == 1 || narrowed || threads < 2 || threads > usable_cpus(topology)) return {};
  const std::vector<int> nodes = nodes_of_cores(topology);
  const std::optional<int> only = node_for(nodes, threads, near);
  std::vector<std::vector<int>> places;
  for (int member = 0; member < threads; ++member) {
    const auto core = nodes.size() * static_cast<std::size_t>(member) / static_cast<std::size_t>(threads);
    const int node = only.value_or(nodes[core]);
    places.push_back(cpus_where(topology, [&](const Cpu& cpu) { return cpu.node == node; }));
  }
  return places;
}

std::vector<std::vector<int>> place_threads(const CpuTopology& topology, int threads) {
  return place_threads(topology, threads, current_node(topology));
}

int current_node(const CpuTopology& topology) {
  const auto cpu = std::ranges::find(topology.cpus, ::sched_getcpu(), &Cpu::id);
  return cpu == topology.cpus.end() ? topology.cpus.front().node : cpu->node;
}

void run_this_thread_on(std::span<const int> cpus) {
  if (cpus.empty()) return;
  CpuMask mask(std::ranges::max(cpus) + 1);
  if (!mask) return;
  for (const int cpu : cpus) mask.add(cpu);
  (void)::sched_setaffinity(0, mask.bytes(), mask.set());
}

}  // namespace adze::cpu
