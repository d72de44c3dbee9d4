// What the program says and where: answers on stdout, everything else on stderr; progress only on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace adze::cli {

// Messages quote what people and files say; a terminal must not obey it.
std::string without_controls(std::string_view text);

class Console {
 public:
  Console();

  bool stdin_is_terminal() const { return stdin_terminal_; }
  bool stdout_is_terminal() const { return stdout_terminal_; }
  bool stderr_is_terminal() const { return stderr_terminal_; }
  void set_quiet(bool quiet) { quiet_ = quiet; }
  bool quiet() const { return quiet_; }

  // The answer, as it is. A stdout that fails (a full disk) is remembered and reported by finish().
  void print(std::string_view text);
  // A piece of a model's answer, shown at once. On a terminal, control characters other than white space are left out:
  // a model must not steer the terminal. False once stdout has failed: the rest of the answer has no reader.
  bool print_answer(std::string_view piece);
  void flush();
  // A line on stderr, unless quiet.
  void note(std::string_view line);
  // "adze: what" and "hint: what to do" on stderr, quiet or not.
  void error(const Error& error);
  // Flushes stdout. Errors: io, disk_full.
  Status finish();

  // Redraws one line on a terminal's stderr; nothing elsewhere. `total` 0: unknown.
  void progress(std::string_view what, std::uint64_t done, std::uint64_t total);
  void progress(std::string_view what, double share);  // of work that has no size in bytes
  void end_progress();

 private:
  void clear_progress();
  bool draws_progress(bool last);
  void draw_progress(std::string_view what, double share, std::string_view of);

  bool stdin_terminal_ = false;
  bool stdout_terminal_ = false;
  bool stderr_terminal_ = false;
  bool quiet_ = false;
  bool progress_shown_ = false;
  std::int64_t progress_drawn_ms_ = 0;
  int write_error_ = 0;
};

// "1.5 GB", "98.1 MB": powers of ten, as disks and hubs count.
std::string format_bytes(std::uint64_t bytes);

// All of stdin. Errors: io, limit_exceeded, invalid_argument where it is not UTF-8 (with the offset of the first bad
// byte).
Result<std::string> read_stdin_text();

// Seconds on a clock that never goes back; peak resident memory of this process in bytes.
double now_seconds();
std::uint64_t peak_memory_bytes();

}  // namespace adze::cli
