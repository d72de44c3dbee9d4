#include "engine/memory.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "engine/policy.hpp"

namespace adze::engine {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The first number of a line that starts with `key` (the whole first line for an empty key).
std::optional<std::uint64_t> number_in(const std::filesystem::path& file, std::string_view key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    const std::size_t digit = line.find_first_of("0123456789", key.size());
    if (digit == std::string::npos) return std::nullopt;
    std::uint64_t value = 0;
    const auto result = std::from_chars(line.data() + digit, line.data() + line.size(), value);
    if (result.ec != std::errc{}) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

// What one group's limit leaves: file pages are given back when memory runs short.
std::uint64_t group_leaves(const std::filesystem::path& group, std::string_view limit_file,
                           std::string_view usage_file) {
  const auto limit = number_in(group / limit_file, "");
  const auto usage = number_in(group / usage_file, "");
  if (!limit || !usage) return kUnlimited;
  const std::uint64_t cache = number_in(group / "memory.stat", "inactive_file ").value_or(0) +
                              number_in(group / "memory.stat", "active_file ").value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

// The group's own limit and those of its parents up to the hierarchy's root.
std::uint64_t hierarchy_leaves(const std::filesystem::path& mount, std::filesystem::path group,
                               std::string_view limit_file, std::string_view usage_file) {
  std::uint64_t least = group_leaves(mount, limit_file, usage_file);  // inside a container, its own group stands here
  for (; group.has_relative_path(); group = group.parent_path()) {
    least = std::min(least, group_leaves(mount / group.relative_path(), limit_file, usage_file));
  }
  return least;
}

std::uint64_t groups_leave(const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::uint64_t least = kUnlimited;
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;  // "0::/user.slice" (version 2) or "5:memory:/docker/1234"
  while (std::getline(in, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, hierarchy_leaves(mount, group, "memory.max", "memory.current"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least =
          std::min(least, hierarchy_leaves(mount / "memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return least;
}

std::uint64_t address_space_left(const std::filesystem::path& root) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const auto pages = number_in(root / "proc/self/statm", "");
  const std::uint64_t used = pages.value_or(0) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used);
}

// Of a context of so many pages, in both groups.
std::uint64_t kv_bytes(const MemoryNeed& need, std::uint64_t pages) {
  const std::uint64_t sliding = std::min(pages, static_cast<std::uint64_t>(need.max_sliding_pages));
  return pages * need.bytes_per_page + sliding * need.bytes_per_sliding_page;
}

// The most pages, up to `wanted`, that `room` bytes hold.
std::uint64_t fitting_pages(const MemoryNeed& need, std::uint64_t wanted, std::uint64_t room) {
  if (kv_bytes(need, wanted) <= room) return wanted;
  const auto most_sliding = static_cast<std::uint64_t>(need.max_sliding_pages);
  const std::uint64_t both = room / (need.bytes_per_page + need.bytes_per_sliding_page);
  if (both < most_sliding) return both;
  return (room - most_sliding * need.bytes_per_sliding_page) / need.bytes_per_page;
}

}  // namespace

std::uint64_t available_memory(const std::filesystem::path& root) {
  const auto kib = number_in(root / "proc/meminfo", "MemAvailable:");
  const std::uint64_t machine = kib ? *kib * 1024 : kUnlimited;
  return std::min({machine, groups_leave(root), address_space_left(root)});
}

std::int64_t sliding_pages(int window, int texts, int rows) {
  return texts * (backend::pages_for(std::int64_t{window} + rows) + 1);
}

void set_pages(const ops::Plan& plan, std::int64_t context, int sequences, backend::PrepareOptions& prepare) {
  prepare.max_pages = backend::pages_for(context);
  const int window = backend::sliding_window(plan);
  const int texts = (sequences > 0 ? sequences : policy::kSlidingSequences) + policy::kKeptWindows;
  prepare.max_sliding_pages =
      window == 0 ? 0 : std::min(prepare.max_pages, sliding_pages(window, texts, prepare.max_batch_rows));
}

MemoryNeed memory_need(const backend::MemoryUse& use, const backend::PrepareOptions& prepare) {
  return {.weights = use.weight_bytes,
          .scratch = use.scratch_bytes,
          .states = use.state_bytes_reserved,
          .bytes_per_page = use.bytes_per_page,
          .bytes_per_sliding_page = use.bytes_per_sliding_page,
          .max_sliding_pages = prepare.max_sliding_pages};
}

Result<std::int64_t> fit_context(const MemoryNeed& need, std::int64_t wanted, bool may_shrink,
                                 std::uint64_t available) {
  const std::uint64_t working = need.scratch + need.states;
  const std::uint64_t fixed = need.weights + working;
  const auto wanted_pages = static_cast<std::uint64_t>(backend::pages_for(wanted));
  const std::uint64_t room = available - std::min(available, fixed);
  const std::uint64_t pages = fitting_pages(need, wanted_pages, room);
  if (pages >= wanted_pages) return wanted;
  const auto largest = static_cast<std::int64_t>(pages) * backend::kPageTokens;
  if (may_shrink && pages > 0) return largest;
  const std::string what = fmt::format(
      "a context of {} tokens needs {} ({} of weights, {} of KV cache, {} of working memory), but {} is available",
      wanted, format_bytes(fixed + kv_bytes(need, wanted_pages)), format_bytes(need.weights),
      format_bytes(kv_bytes(need, wanted_pages)), format_bytes(working), format_bytes(available));
  if (pages == 0) {
    return fail(ErrorCode::out_of_memory, what, "no context fits: free memory, or take a smaller model");
  }
  return fail(ErrorCode::out_of_memory, what, fmt::format("the largest context that fits is {}", largest));
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits{"GiB", "MiB", "KiB", "bytes"};
  std::uint64_t unit = 1u << 30;
  std::size_t i = 0;
  while (i + 1 < kUnits.size() && bytes < unit) {
    unit >>= 10;
    ++i;
  }
  const double value = static_cast<double>(bytes) / static_cast<double>(unit);
  return i + 1 < kUnits.size() && value < 100 ? fmt::format("{:.1f} {}", value, kUnits[i])
                                              : fmt::format("{:.0f} {}", value, kUnits[i]);
}

}  // namespace adze::engine
