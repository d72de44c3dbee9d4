#include "cli/console.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/file.hpp"
#include "cli/utf8.hpp"

namespace adze::cli {
namespace {

constexpr std::size_t kMaxStdinBytes = 256u << 20;
constexpr int kExitInterrupted = 130;

std::atomic<bool> interrupt_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal");

extern "C" void on_interrupt(int /*signal*/) {
  if (interrupt_flag.exchange(true)) ::_exit(kExitInterrupted);
}

}  // namespace

Console::Console()
    : stdin_terminal_(::isatty(STDIN_FILENO) == 1),
      stdout_terminal_(::isatty(STDOUT_FILENO) == 1),
      stderr_terminal_(::isatty(STDERR_FILENO) == 1) {}

void Console::print(std::string_view text) {
  clear_progress();
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && write_error_ == 0) write_error_ = errno;
}

bool Console::print_answer(std::string_view piece) {
  if (!stdout_terminal_) {
    print(piece);
  } else {
    std::string shown;
    for (const char c : piece) {
      const auto byte = static_cast<unsigned char>(c);
      if ((byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\t') shown += c;
    }
    print(shown);
  }
  flush();
  return write_error_ == 0;
}

void Console::flush() {
  if (std::fflush(stdout) != 0 && write_error_ == 0) write_error_ = errno;
}

Status Console::finish() {
  clear_progress();
  flush();
  if (write_error_ != 0) return tl::unexpected<Error>(errno_error(write_error_, "write to", "stdout"));
  return {};
}

void Console::note(std::string_view line) {
  if (quiet_) return;
  clear_progress();
  flush();
  fmt::print(stderr, "{}\n", line);
}

void Console::error(const Error& error) {
  clear_progress();
  flush();
  fmt::print(stderr, "adze: {}\n", error.message);
  if (!error.hint.empty()) fmt::print(stderr, "hint: {}\n", error.hint);
}

void Console::progress(std::string_view what, std::uint64_t done, std::uint64_t total) {
  if (quiet_ || !stderr_terminal_) return;
  const auto now_ms = static_cast<std::int64_t>(now_seconds() * 1e3);
  if (progress_shown_ && now_ms - progress_drawn_ms_ < 100 && done != total) return;
  progress_drawn_ms_ = now_ms;
  progress_shown_ = true;
  if (total == 0) {
    fmt::print(stderr, "\r\033[K{} {}", what, format_bytes(done));
    return;
  }
  constexpr std::size_t kWidth = 30;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const auto filled = static_cast<std::size_t>(share * kWidth);
  fmt::print(stderr, "\r\033[K{} [{:#<{}}{:.<{}}] {:3.0f} % of {}", what, "", filled, "", kWidth - filled, share * 100,
             format_bytes(total));
}

void Console::end_progress() { clear_progress(); }

void Console::clear_progress() {
  if (!progress_shown_) return;
  progress_shown_ = false;
  fmt::print(stderr, "\r\033[K");
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Result<std::string> read_stdin_text() {
  std::string text;
  std::array<char, 1 << 16> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      if (interrupted()) return fail(ErrorCode::cancelled, "stopped while reading stdin");
      continue;
    }
    if (got < 0) return tl::unexpected<Error>(errno_error(errno, "read", "stdin"));
    if (got == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxStdinBytes) {
      return fail(ErrorCode::limit_exceeded, fmt::format("stdin is longer than {}", format_bytes(kMaxStdinBytes)),
                  "Give it less text.");
    }
  }
  if (const auto bad = first_bad_utf8(text)) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("stdin is not UTF-8: byte 0x{:02x} at offset {}", static_cast<unsigned char>(text[*bad]), *bad),
        "Convert it first, for example with iconv -t UTF-8.");
  }
  return text;
}

void watch_interrupts() {
  struct sigaction action{};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a blocked read ends
  ::sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupt_flag.load(std::memory_order_relaxed); }
void clear_interrupt() { interrupt_flag.store(false, std::memory_order_relaxed); }

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace adze::cli
