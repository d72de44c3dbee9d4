#include "backend/cpu/cpu_topology.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

#include "base/limits.hpp"

namespace adze::cpu {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine made of files.
class FakeMachine {
 public:
  FakeMachine() {
    static int made = 0;
    root_ = fs::path(::testing::TempDir()) / fmt::format("adze-machine-{}-{}", ::getpid(), ++made);
    fs::remove_all(root_);
  }
  ~FakeMachine() { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  // CPU i and CPU i + cores share core i, as Linux numbers them; each node has an equal run of cores.
  void build(int cores, int cpus_per_core, int nodes) const {
    const int cpus = cores * cpus_per_core;
    write("sys/devices/system/cpu/online", fmt::format("0-{}", cpus - 1));
    write("sys/devices/system/node/online", nodes == 1 ? "0" : fmt::format("0-{}", nodes - 1));
    std::vector<std::string> lists(static_cast<std::size_t>(nodes));
    for (int cpu = 0; cpu < cpus; ++cpu) {
      const int core = cpu % cores;
      const std::string siblings = cpus_per_core == 1 ? fmt::to_string(core) : fmt::format("{},{}", core, core + cores);
      write(fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu), siblings);
      std::string& list = lists[static_cast<std::size_t>(core * nodes / cores)];
      list += (list.empty() ? "" : ",") + fmt::to_string(cpu);
    }
    for (int node = 0; node < nodes; ++node) {
      write(fmt::format("sys/devices/system/node/node{}/cpulist", node), lists[static_cast<std::size_t>(node)]);
    }
    all_.resize(static_cast<std::size_t>(cpus));
    std::iota(all_.begin(), all_.end(), 0);
  }
  CpuTopology read() const { return read_topology(root_, all_); }
  CpuTopology read(std::vector<int> allowed) const { return read_topology(root_, allowed); }
  std::optional<CpuQuota> quota() const { return read_cpu_quota(root_); }

 private:
  fs::path root_;
  mutable std::vector<int> all_;
};

TEST(CpuList, IsReadOrRefusedWhole) {
  EXPECT_THAT(parse_cpu_list("0-2,7,9-9"), ElementsAre(0, 1, 2, 7, 9));
  EXPECT_THAT(parse_cpu_list("3"), ElementsAre(3));
  for (const char* text : {"", "a", "1-", "-1", "2-1", "1,", ",1", "1 2", "0-99999999", "1--2", "99999999999"}) {
    EXPECT_THAT(parse_cpu_list(text), IsEmpty()) << text;
  }
}

TEST(CpuTopology, WithoutFilesEveryCpuIsACore) {
  const CpuTopology topology = FakeMachine().read({2, 5, 6});
  EXPECT_EQ(topology.cores(), 3);
  EXPECT_EQ(topology.nodes(), 1);
  EXPECT_EQ(topology.online, 3);
  EXPECT_EQ(usable_cpus(topology), 3);
  EXPECT_EQ(choose_threads(topology).threads, 3);
  EXPECT_EQ(usable_cpus(FakeMachine().read({})), 1);
}

TEST(CpuTopology, ThreadsAreOnePerCore) {
  const FakeMachine machine;
  machine.build(8, 2, 1);
  const ThreadChoice all = choose_threads(machine.read());
  EXPECT_EQ(all.threads, 8);
  EXPECT_EQ(all.reason, "one per core; 16 CPUs share 8 cores");
  EXPECT_EQ(usable_cpus(machine.read()), 16);

  const ThreadChoice some = choose_threads(machine.read({0, 1, 8}));  // 0 and 8 are one core
  EXPECT_EQ(some.threads, 2);
  EXPECT_EQ(some.reason, "one per core; 3 CPUs share 2 cores; the affinity mask allows 3 of 16 CPUs");
}

TEST(CpuTopology, ThreadsAreWithinTheLimit) {
  const FakeMachine machine;
  std::vector<int> many(static_cast<std::size_t>(limits::kMaxThreads) + 8);
  std::iota(many.begin(), many.end(), 0);
  const ThreadChoice choice = choose_threads(machine.read(many));
  EXPECT_EQ(choice.threads, limits::kMaxThreads);
  EXPECT_THAT(choice.reason, HasSubstr("no more than 512"));
}

// --- quotas ----------------------------------------------------------------------------------------------------------

constexpr char kVersion2[] = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
constexpr char kVersion1[] = "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";

TEST(CpuQuota, OfVersion2IsTheTightestUpToTheRoot) {
  const FakeMachine machine;
  machine.build(8, 1, 1);
  machine.write("proc/self/mountinfo", kVersion2);
  machine.write("proc/self/cgroup", "0::/system.slice/adze.service");
  EXPECT_FALSE(machine.quota());
  machine.write("sys/fs/cgroup/system.slice/adze.service/cpu.max", "max 100000");
  EXPECT_FALSE(machine.quota());
  machine.write("sys/fs/cgroup/system.slice/cpu.max", "350000 100000");
  ASSERT_TRUE(machine.quota());
  EXPECT_DOUBLE_EQ(machine.quota()->cpus, 3.5);
  EXPECT_EQ(usable_cpus(machine.read()), 3);  // half a CPU holds all threads up
  const ThreadChoice choice = choose_threads(machine.read());
  EXPECT_EQ(choice.threads, 3);
  EXPECT_THAT(choice.reason, HasSubstr("the control group allows 3.5 CPUs"));
  EXPECT_THAT(choice.reason, HasSubstr("sys/fs/cgroup/system.slice/cpu.max"));

  machine.write("sys/fs/cgroup/system.slice/adze.service/cpu.max", "50000 100000");
  EXPECT_EQ(choose_threads(machine.read()).threads, 1);  // half a CPU: still one thread
  machine.write("sys/fs/cgroup/system.slice/adze.service/cpu.max", "900000 100000");
  EXPECT_EQ(choose_threads(machine.read()).threads, 3);
}

TEST(CpuQuota, OfAContainerStandsAtTheTopOfWhatItSees) {
  const FakeMachine machine;
  machine.write("proc/self/mountinfo", kVersion2);
  machine.write("proc/self/cgroup", "0::/");
  machine.write("sys/fs/cgroup/cpu.max", "200000 100000");
  ASSERT_TRUE(machine.quota());
  EXPECT_DOUBLE_EQ(machine.quota()->cpus, 2);

  machine.write("proc/self/cgroup", "0::/../elsewhere");  // moved out of the namespace it was made in
  ASSERT_TRUE(machine.quota());
  EXPECT_DOUBLE_EQ(machine.quota()->cpus, 2);
}

TEST(CpuQuota, OfVersion1) {
  const FakeMachine machine;
  machine.write("proc/self/mountinfo", kVersion1);
  machine.write("proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/docker/abc\n0::/");
  machine.write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1");
  machine.write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000");
  EXPECT_FALSE(machine.quota());
  machine.write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000");
  ASSERT_TRUE(machine.quota());
  EXPECT_DOUBLE_EQ(machine.quota()->cpus, 2.5);
}

TEST(CpuQuota, OfVersion1WhereTheContainersGroupIsMountedAsTheTop) {
  const FakeMachine machine;
  machine.write("proc/self/mountinfo", "33 32 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu");
  machine.write("proc/self/cgroup", "4:cpu:/docker/abc");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  ASSERT_TRUE(machine.quota());
  EXPECT_DOUBLE_EQ(machine.quota()->cpus, 4);
}

TEST(CpuQuota, NonsenseIsNoQuota) {
  const FakeMachine machine;
  machine.write("proc/self/mountinfo", std::string("cgroup\n1 2 - \n") + kVersion2);
  machine.write("proc/self/cgroup", "nothing");
  for (const char* text : {"", "x y", "100000", "100000 0", "-5 100000", "1e999 100000"}) {
    machine.write("sys/fs/cgroup/cpu.max", text);
    EXPECT_FALSE(machine.quota()) << text;
  }
}

// --- placement -------------------------------------------------------------------------------------------------------

using Places = std::vector<std::vector<int>>;

TEST(Placement, ALargeTeamIsSpreadSoThatNeighboursShareANode) {
  const FakeMachine machine;
  machine.build(4, 2, 2);
  const std::vector<int> low{0, 1, 4, 5}, high{2, 3, 6, 7};
  EXPECT_EQ(place_threads(machine.read(), 4, 1), (Places{low, low, high, high}));
  EXPECT_EQ(place_threads(machine.read(), 3, 0), (Places{low, low, high}));
  EXPECT_EQ(place_threads(machine.read(), 8, 0), (Places{low, low, low, low, high, high, high, high}));
}

TEST(Placement, FollowsNodesHoweverTheyAreNumbered) {
  const FakeMachine machine;
  machine.build(6, 1, 1);
  machine.write("sys/devices/system/node/online", "0-1");
  machine.write("sys/devices/system/node/node0/cpulist", "0,2,4,5");
  machine.write("sys/devices/system/node/node1/cpulist", "1,3");
  const std::vector<int> four{0, 2, 4, 5}, two{1, 3};
  EXPECT_EQ(place_threads(machine.read(), 6, 0), (Places{four, four, four, four, two, two}));
  EXPECT_EQ(place_threads(machine.read(), 3, 1), (Places{four, four, four}));  // too many for the near one
  EXPECT_EQ(place_threads(machine.read(), 2, 7), (Places{two, two}));  // no such node: the smallest that will do
}

TEST(Placement, ATeamThatFitsStaysOnOneNode) {
  const FakeMachine machine;
  machine.build(8, 1, 2);
  EXPECT_EQ(place_threads(machine.read(), 3, 1), Places(3, {4, 5, 6, 7}));
  EXPECT_EQ(place_threads(machine.read(), 4, 0), Places(4, {0, 1, 2, 3}));
}

TEST(Placement, LeavesAloneWhatOthersPlaceBetter) {
  const FakeMachine one_node;
  one_node.build(8, 1, 1);
  EXPECT_THAT(place_threads(one_node.read(), 8, 0), IsEmpty());
  const FakeMachine machine;
  machine.build(8, 1, 2);
  EXPECT_THAT(place_threads(machine.read(), 1, 0), IsEmpty());
  EXPECT_THAT(place_threads(machine.read(), 9, 0), IsEmpty());           // more than CPUs
  EXPECT_THAT(place_threads(machine.read({0, 1, 4}), 2, 0), IsEmpty());  // a narrow affinity mask
  machine.write("proc/self/mountinfo", kVersion2);
  machine.write("proc/self/cgroup", "0::/");
  machine.write("sys/fs/cgroup/cpu.max", "300000 100000");
  EXPECT_THAT(place_threads(machine.read(), 8, 0), IsEmpty());  // a quota
  EXPECT_EQ(place_threads(machine.read(), 3, 0).size(), 3u);
}

TEST(Placement, OfThisMachineIsPossible) {
  const CpuTopology topology = read_topology();
  EXPECT_GE(usable_cpus(topology), 1);
  EXPECT_LE(choose_threads(topology).threads, usable_cpus(topology));
  EXPECT_FALSE(choose_threads(topology).reason.empty());
  for (const int threads : {1, 2, topology.cores(), static_cast<int>(topology.cpus.size())}) {
    for (const std::vector<int>& cpus : place_threads(topology, threads, current_node(topology))) {
      EXPECT_FALSE(cpus.empty());
    }
  }
}

}  // namespace
}  // namespace adze::cpu
