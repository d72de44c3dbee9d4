#include "tests/e2e/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace adze::e2e {
namespace {

constexpr int kPatienceMs = 60'000;

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// The exit code of a program that has closed its output. One that does not end is killed, and says 137.
int reap(pid_t child) {
  int status = 0;
  for (int waited_ms = 0; ::waitpid(child, &status, WNOHANG) == 0; waited_ms += 10) {
    if (waited_ms >= kPatienceMs / 10) ::kill(child, SIGKILL);
    ::usleep(10'000);
  }
  return exit_code_of(status);
}

// In the child: becomes the program, with an environment that holds nothing of the tester's.
[[noreturn]] void become(const Sandbox& sandbox, const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment) {
  std::vector<std::string> words{ADZE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables{"HOME=" + sandbox.path().string(), "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8",
                                     "TERM=xterm", "ASAN_OPTIONS=detect_leaks=0"};
  variables.insert(variables.end(), environment.begin(), environment.end());
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> list;
    for (std::string& s : strings) list.push_back(s.data());
    list.push_back(nullptr);
    return list;
  };
  ::execve(ADZE_PROGRAM, pointers(words).data(), pointers(variables).data());
  ::_exit(127);
}

}  // namespace

Sandbox::Sandbox() {
  static std::atomic<int> count{0};
  path_ = std::filesystem::temp_directory_path() / fmt::format("adze_e2e_{}_{}", ::getpid(), count++);
  std::filesystem::create_directories(path_);
}

Sandbox::~Sandbox() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Sandbox::write(const std::string& name, std::string_view text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
  return file(name);
}

Outcome run(const Sandbox& sandbox, const Invocation& invocation) {
  std::signal(SIGPIPE, SIG_IGN);  // the program may not want all of its input
  std::array<int, 2> in{}, out{}, err{};
  if (::pipe(in.data()) != 0 || ::pipe(out.data()) != 0 || ::pipe(err.data()) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_DFL);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(invocation.stdout_file.empty() ? out[1] : ::open(invocation.stdout_file.c_str(), O_WRONLY), STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const int fd : {in[0], in[1], out[0], out[1], err[0], err[1]}) ::close(fd);
    become(sandbox, invocation.arguments, invocation.environment);
  }
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  // The inputs of these tests fit a pipe's buffer, so that one write before reading cannot block.
  if (!invocation.input.empty() && ::write(in[1], invocation.input.data(), invocation.input.size()) < 0) {
    // A program that stopped reading says so by its exit code.
  }
  ::close(in[1]);
  Outcome outcome;
  std::array<pollfd, 2> sources{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  std::array<std::string*, 2> texts{&outcome.out, &outcome.err};
  int open = 2;
  while (open > 0 && ::poll(sources.data(), sources.size(), kPatienceMs) > 0) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].revents == 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t got = ::read(sources[i].fd, buffer.data(), buffer.size());
      if (got > 0) {
        texts[i]->append(buffer.data(), static_cast<std::size_t>(got));
      } else {
        ::close(sources[i].fd);
        sources[i].fd = -1;
        --open;
      }
    }
  }
  if (open > 0) ::kill(child, SIGKILL);
  outcome.exit_code = reap(child);
  return outcome;
}

TerminalSession::TerminalSession(const Sandbox& sandbox, const std::vector<std::string>& arguments) {
  winsize size{};
  size.ws_row = 40;
  size.ws_col = 100;
  child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
  if (child_ == 0) become(sandbox, arguments, {});
}

TerminalSession::~TerminalSession() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ::close(terminal_);
}

void TerminalSession::type(std::string_view keys) {
  if (::write(terminal_, keys.data(), keys.size()) < 0) shown_ += "(the terminal is closed)";
}

bool TerminalSession::read_some() {
  pollfd source{terminal_, POLLIN, 0};
  if (::poll(&source, 1, kPatienceMs) <= 0) return false;
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(terminal_, buffer.data(), buffer.size());
  if (got <= 0) return false;  // EIO: the program has gone
  shown_.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

bool TerminalSession::wait_for(std::string_view text) {
  for (;;) {
    const auto found = shown_.find(text, consumed_);
    if (found != std::string::npos) {
      consumed_ = found + text.size();
      return true;
    }
    if (!read_some()) return false;
  }
}

bool TerminalSession::wait_for_more(std::size_t bytes) {
  while (shown_.size() - consumed_ < bytes) {
    if (!read_some()) return false;
  }
  return true;
}

int TerminalSession::wait_exit() {
  while (read_some()) {
  }
  return reap(std::exchange(child_, -1));
}

}  // namespace adze::e2e
