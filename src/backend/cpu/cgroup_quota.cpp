#include "backend/cpu/cgroup_quota.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace adze::cpu {
namespace {

namespace fs = std::filesystem;

// A tree of groups as the process sees it. A container sees the part of the tree below `top` only, at `mount`.
struct Hierarchy {
  bool version_2 = false;
  fs::path top, mount;
};

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const auto comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    if (comma == list.npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

// Lines of proc_pid_mountinfo(5): id, parent, device, top, mount point, options, optional fields, "-", type, source,
// options of the file system.
std::vector<Hierarchy> mounted_hierarchies(const fs::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::istringstream mount(line.substr(0, dash)), system(line.substr(dash + 3));
    std::string skipped, top, point, type, options;
    mount >> skipped >> skipped >> skipped >> top >> point;
    system >> type >> skipped >> options;
    if (type == "cgroup2" || (type == "cgroup" && has_word(options, "cpu"))) {
      found.push_back({type == "cgroup2", top, point});
    }
  }
  return found;
}

// The process's group in a hierarchy: lines of cgroups(7), "0::/path" for version 2 and "4:cpu,cpuacct:/path".
fs::path own_group(const fs::path& root, bool version_2) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (version_2 ? controllers.empty() : has_word(controllers, "cpu")) return line.substr(second + 1);
  }
  return "/";
}

double to_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? value : 0;
}

std::string first_word(const fs::path& file, std::string* second = nullptr) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  if (second != nullptr) stream >> *second;
  return word;
}

// Of one group; 0 cpus: no limit. "max" is no number, and version 1 writes -1.
CpuQuota quota_of(const fs::path& group, bool version_2) {
  std::string period;
  const fs::path file = group / (version_2 ? "cpu.max" : "cpu.cfs_quota_us");
  const std::string quota = first_word(file, &period);
  if (!version_2) period = first_word(group / "cpu.cfs_period_us");
  const double time = to_number(quota), every = to_number(period);
  return {time > 0 && every > 0 ? time / every : 0, file.string()};
}

}  // namespace

std::optional<CpuQuota> read_cpu_quota(const fs::path& root) {
  std::optional<CpuQuota> tightest;
  for (const Hierarchy& hierarchy : mounted_hierarchies(root)) {
    fs::path below = own_group(root, hierarchy.version_2).lexically_relative(hierarchy.top);
    // A group outside what is mounted here: only the top can be looked at.
    if (below.empty() || *below.begin() == "..") below = ".";
    const fs::path mount = root / hierarchy.mount.relative_path();
    for (fs::path group = below;; group = group.parent_path()) {
      const CpuQuota quota = quota_of(group == "." ? mount : mount / group, hierarchy.version_2);
      if (quota.cpus > 0 && (!tightest || quota.cpus < tightest->cpus)) tightest = quota;
      if (group.empty() || group == ".") break;
    }
  }
  return tightest;
}

}  // namespace adze::cpu
