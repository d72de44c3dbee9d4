#include "cli/console.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "cli/interrupt.hpp"
#include "cli/utf8.hpp"

namespace adze::cli {
namespace {

// What stderr will not take is lost: there is nobody left to tell.
template <class... Values>
void print_stderr(fmt::format_string<Values...> format, Values&&... values) {
  const std::string text = fmt::format(format, std::forward<Values>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

std::string without_controls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\t') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

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
  print_stderr("{}\n", without_controls(line));
}

void Console::error(const Error& error) {
  clear_progress();
  flush();
  print_stderr("adze: {}\n", without_controls(error.message));
  if (!error.hint.empty()) print_stderr("hint: {}\n", without_controls(error.hint));
}

// Whether it is time to draw again.
bool Console::draws_progress(bool last) {
  if (quiet_ || !stderr_terminal_) return false;
  const auto now_ms = static_cast<std::int64_t>(now_seconds() * 1e3);
  if (progress_shown_ && now_ms - progress_drawn_ms_ < 100 && !last) return false;
  progress_drawn_ms_ = now_ms;
  progress_shown_ = true;
  return true;
}

void Console::draw_progress(std::string_view what, double share, std::string_view of) {
  constexpr std::size_t kWidth = 30;
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * kWidth);
  print_stderr("\r\033[K{} [{:#<{}}{:.<{}}] {:3.0f} %{}", what, "", filled, "", kWidth - filled, share * 100, of);
}

void Console::progress(std::string_view what, std::uint64_t done, std::uint64_t total) {
  if (!draws_progress(done == total)) return;
  if (total == 0) {
    print_stderr("\r\033[K{} {}", what, format_bytes(done));
    return;
  }
  draw_progress(what, static_cast<double>(done) / static_cast<double>(total), " of " + format_bytes(total));
}

void Console::progress(std::string_view what, double share) {
  if (draws_progress(share >= 1.0)) draw_progress(what, share, {});
}

void Console::end_progress() { clear_progress(); }

void Console::clear_progress() {
  if (!progress_shown_) return;
  progress_shown_ = false;
  print_stderr("\r\033[K");
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
    if (text.size() > limits::kMaxPromptBytes) {
      return fail(ErrorCode::limit_exceeded,
                  fmt::format("stdin is longer than {}", format_bytes(limits::kMaxPromptBytes)), "Give it less text.");
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

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace adze::cli
