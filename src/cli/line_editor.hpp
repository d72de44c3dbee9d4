// Reads lines from a terminal with editing and history (libedit, loaded at run time; without it, plain lines).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace adze::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome : std::uint8_t { line, interrupted, end };
  // Shows `prompt` and reads one line into `line`, without its newline. interrupted: Ctrl-C; end: Ctrl-D or a closed
  // terminal.
  Outcome read(std::string_view prompt, std::string& line);
  void remember(const std::string& line);  // into the history

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adze::cli
