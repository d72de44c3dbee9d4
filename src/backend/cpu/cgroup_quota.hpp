// How much CPU time the control groups of this process allow it, as container runtimes and service managers set it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace adze::cpu {

struct CpuQuota {
  double cpus = 0;   // seconds of CPU per second; 1.5 is one and a half CPUs
  std::string from;  // the file that says so
};

// The tightest limit of the process's own group and all groups above it, of version 2 (cpu.max) and version 1
// (cpu.cfs_quota_us); none when nothing limits it or the files cannot be read. `root` is where /proc and /sys are
// looked for.
std::optional<CpuQuota> read_cpu_quota(const std::filesystem::path& root);

}  // namespace adze::cpu
