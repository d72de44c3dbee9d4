// Runs the program under test: with pipes, or on a terminal of its own.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace adze::e2e {

// A folder of its own for one test, and the home directory of the programs that it runs.
class Sandbox {
 public:
  Sandbox();
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, std::string_view text) const;  // gives the path

 private:
  std::filesystem::path path_;
};

struct Outcome {
  int exit_code = -1;  // 128 + signal where a signal ended it
  std::string out;
  std::string err;
};

struct Invocation {
  std::vector<std::string> arguments;    // after the program's name
  std::string input;                     // stdin is always a pipe
  std::vector<std::string> environment;  // "NAME=value", besides HOME and PATH; nothing is inherited
  std::string stdout_file;               // instead of a pipe
};
Outcome run(const Sandbox& sandbox, const Invocation& invocation);

// The program on a pseudo-terminal, 100 columns wide.
class TerminalSession {
 public:
  TerminalSession(const Sandbox& sandbox, const std::vector<std::string>& arguments);
  ~TerminalSession();
  TerminalSession(const TerminalSession&) = delete;
  TerminalSession& operator=(const TerminalSession&) = delete;

  void type(std::string_view keys);
  // Reads until `text` appears after what earlier calls consumed; false when the program ends or a minute passes.
  bool wait_for(std::string_view text);
  // Reads until there are `bytes` after what was consumed.
  bool wait_for_more(std::size_t bytes);
  // Everything that was shown so far.
  const std::string& shown() const { return shown_; }
  int wait_exit();  // reads to the end; the exit code, that of a killed program when a minute passes without an end

 private:
  bool read_some();
  int terminal_ = -1;
  int child_ = -1;
  std::string shown_;
  std::size_t consumed_ = 0;
};

}  // namespace adze::e2e
