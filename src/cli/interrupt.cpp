#include "cli/interrupt.hpp"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace adze::cli {
namespace {

constexpr int kExitInterrupted = 130;

std::atomic<bool> interrupt_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal");
std::array<int, 2> wake_pipe{-1, -1};

extern "C" void on_interrupt(int /*signal*/) {
  if (interrupt_flag.exchange(true)) ::_exit(kExitInterrupted);
  const int error = errno;
  const ssize_t written = ::write(wake_pipe[1], "", 1);
  static_cast<void>(written);  // a full pipe is readable already
  errno = error;
}

}  // namespace

void watch_interrupts() {
  if (wake_pipe[0] < 0 && ::pipe2(wake_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe = {-1, -1};
  struct sigaction action{};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a blocked read of this thread ends
  ::sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupt_flag.load(std::memory_order_relaxed); }

void clear_interrupt() {
  std::array<char, 16> drained;
  while (wake_pipe[0] >= 0 && ::read(wake_pipe[0], drained.data(), drained.size()) > 0) {
  }
  ::tcflush(STDIN_FILENO, TCIFLUSH);
  interrupt_flag.store(false, std::memory_order_relaxed);
}

int interrupt_descriptor() { return wake_pipe[0]; }

}  // namespace adze::cli
