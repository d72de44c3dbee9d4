#include "hub/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/limits.hpp"

extern char** environ;

namespace adze::hub {
namespace {

constexpr int kTickMilliseconds = 100;

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool replaced = std::any_of(added.begin(), added.end(),
                                      [&](const auto& pair) { return text.substr(0, text.find('=')) == pair.first; });
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(fmt::format("{}={}", name, value));
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// posix_spawn with output to `write_end`; errno or 0.
int spawn(std::vector<std::string> arguments, std::vector<std::string> environment, int write_end, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, write_end, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, write_end, STDERR_FILENO);
  const int error = ::posix_spawnp(&pid, arguments[0].c_str(), &actions, nullptr, pointers(arguments).data(),
                                   pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<ChildOutcome> run_child(const std::vector<std::string>& arguments,
                               const std::vector<std::pair<std::string, std::string>>& environment,
                               const std::function<bool()>& tick) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return fail(ErrorCode::io, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  pid_t pid = 0;
  const int error = spawn(arguments, merged_environment(environment), ends[1], pid);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                fmt::format("cannot run '{}': {}", arguments[0], std::strerror(error)));
  }
  ChildOutcome outcome;
  bool cancelled = false;
  for (;;) {
    pollfd poller{ends[0], POLLIN, 0};
    const int ready = ::poll(&poller, 1, kTickMilliseconds);
    if (!cancelled && tick && !tick()) {
      cancelled = true;
      ::kill(pid, SIGTERM);
    }
    if (ready <= 0) continue;
    std::array<char, 4096> buffer{};
    const ssize_t n = ::read(ends[0], buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // the child and its children have closed it
    outcome.output.append(buffer.data(), static_cast<std::size_t>(n));
    if (outcome.output.size() > limits::kMaxToolOutputBytes)
      outcome.output.erase(0, outcome.output.size() - limits::kMaxToolOutputBytes);
  }
  ::close(ends[0]);
  outcome.exit_status = wait_for(pid);
  if (cancelled) return fail(ErrorCode::cancelled, fmt::format("'{}' was cancelled", arguments[0]));
  return outcome;
}

}  // namespace adze::hub
