#include "hub/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/limits.hpp"

extern char** environ;

namespace adze::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMilliseconds = 100;
constexpr int kClosedMilliseconds = 10;           // the same once the child has closed its pipes
constexpr auto kGrace = std::chrono::seconds(2);  // between asking a child to end and ending it

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

// posix_spawn with output to these pipes' ends; errno or 0.
int spawn(std::vector<std::string> arguments, std::vector<std::string> environment, int out, int err, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  posix_spawnattr_t attributes;  // a group of its own, so that it can be ended with its children
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  const int error = ::posix_spawnp(&pid, arguments[0].c_str(), &actions, &attributes, pointers(arguments).data(),
                                   pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

// The exit status of a child that has ended; nothing while it runs.
std::optional<int> ended(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// What comes out of a pipe, the last of it. Closed when the child and its children have closed it.
class Tail {
 public:
  Status open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      return fail(ErrorCode::io, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    read_end_ = ends[0];
    write_end_ = ends[1];
    return {};
  }
  Tail() = default;
  Tail(const Tail&) = delete;
  Tail& operator=(const Tail&) = delete;
  ~Tail() {
    close(read_end_);
    close(write_end_);
  }
  int read_end() const { return read_end_; }
  int write_end() const { return write_end_; }
  bool is_open() const { return read_end_ >= 0; }
  void close_write_end() { close(write_end_); }
  void read() {
    std::array<char, 4096> buffer{};
    const ssize_t n = ::read(read_end_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) return close(read_end_);
    text_.append(buffer.data(), static_cast<std::size_t>(n));
    if (text_.size() > limits::kMaxToolOutputBytes) text_.erase(0, text_.size() - limits::kMaxToolOutputBytes);
  }
  std::string take() { return std::move(text_); }

 private:
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  int read_end_ = -1, write_end_ = -1;
  std::string text_;
};

}  // namespace

Result<ChildOutcome> run_child(const std::vector<std::string>& arguments,
                               const std::vector<std::pair<std::string, std::string>>& environment,
                               const std::function<bool()>& tick) {
  Tail output, errors;
  ADZE_TRY_STATUS(output.open());
  ADZE_TRY_STATUS(errors.open());
  pid_t pid = 0;
  const int error = spawn(arguments, merged_environment(environment), output.write_end(), errors.write_end(), pid);
  output.close_write_end();
  errors.close_write_end();
  if (error != 0) {
    return fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                fmt::format("cannot run '{}': {}", arguments[0], std::strerror(error)));
  }
  // It is over when the child has ended, whoever of its own children still holds its pipes: they end with it. One that
  // is cancelled and does not go is ended.
  std::optional<Clock::time_point> cancelled;
  std::optional<int> status;
  for (bool read = true; read || !status;) {
    std::array<pollfd, 2> pollers{pollfd{output.read_end(), POLLIN, 0}, pollfd{errors.read_end(), POLLIN, 0}};
    // A closed end (-1) is passed over.
    const int wait = status ? 0 : output.is_open() || errors.is_open() ? kTickMilliseconds : kClosedMilliseconds;
    read = ::poll(pollers.data(), pollers.size(), wait) > 0;
    if (!status && !cancelled && tick && !tick()) {
      cancelled = Clock::now();
      ::kill(-pid, SIGTERM);
    } else if (!status && cancelled && Clock::now() - *cancelled > kGrace) {
      ::kill(-pid, SIGKILL);
    }
    if (pollers[0].revents != 0) output.read();
    if (pollers[1].revents != 0) errors.read();
    if (status) continue;
    status = ended(pid);
    if (status) ::kill(-pid, SIGKILL);
  }
  if (cancelled) return fail(ErrorCode::cancelled, fmt::format("'{}' was cancelled", arguments[0]));
  return ChildOutcome{.exit_status = *status, .output = output.take(), .errors = errors.take()};
}

}  // namespace adze::hub
