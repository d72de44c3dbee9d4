#include "backend/cpu/cpu_features.hpp"

#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <fstream>

namespace adze::cpu {
namespace {

#if defined(__x86_64__)
// Leaf 7.1, which not every compiler's __builtin_cpu_supports names. It needs no more of the system than AVX2.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 16u) != 0;
}
#endif

std::vector<const KernelTable*> detect_tables() {
  std::vector<const KernelTable*> tables;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512vnni")) tables.push_back(&kAvx512VnniTable);
  if (avx512) tables.push_back(&kAvx512Table);
  if (avx2 && has_avx_vnni()) tables.push_back(&kAvxVnniTable);
  if (avx2) tables.push_back(&kAvx2Table);
#elif defined(__aarch64__)
  if ((::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) tables.push_back(&kNeonDotprodTable);
#endif
  tables.push_back(&kScalarTable);
  return tables;
}

}  // namespace

std::span<const KernelTable* const> available_tables() {
  static const std::vector<const KernelTable*> tables = detect_tables();
  return tables;
}

Result<const KernelTable*> choose_table(std::string_view forced) {
  const auto tables = available_tables();
  if (forced.empty()) return tables.front();
  std::string names;
  for (const KernelTable* table : tables) {
    if (forced == table->name) return table;
    names += (names.empty() ? "" : ", ") + std::string(table->name);
  }
  return fail(ErrorCode::invalid_argument, fmt::format("no kernels named '{}' run on this machine", forced),
              "it may be one of: " + names);
}

std::uint64_t last_cache_bytes() {
  long most = 0;
  for (const int level : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    most = std::max(most, ::sysconf(level));
  }
  return static_cast<std::uint64_t>(most);
}

CpuDescription describe_cpu() {
  CpuDescription description;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      description.model = line.substr(line.find(": ") + 2);
      break;
    }
  }
#if defined(__x86_64__)
  __builtin_cpu_init();
#define ADZE_FEATURE(name) \
  if (__builtin_cpu_supports(name)) description.features.emplace_back(name)
  ADZE_FEATURE("avx2");
  ADZE_FEATURE("fma");
  ADZE_FEATURE("f16c");
  if (has_avx_vnni()) description.features.emplace_back("avxvnni");
  ADZE_FEATURE("avx512f");
  ADZE_FEATURE("avx512bw");
  ADZE_FEATURE("avx512dq");
  ADZE_FEATURE("avx512vl");
  ADZE_FEATURE("avx512vnni");
#undef ADZE_FEATURE
#elif defined(__aarch64__)
  const unsigned long bits = ::getauxval(AT_HWCAP);
  if ((bits & HWCAP_ASIMD) != 0) description.features.emplace_back("neon");
  if ((bits & HWCAP_ASIMDDP) != 0) description.features.emplace_back("dotprod");
#endif
  return description;
}

}  // namespace adze::cpu
