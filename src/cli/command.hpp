// A command as data: its words, options and function. Parsing, --help, the man page and the completions are all made
// from these rows and from the settings' rows (base/settings.hpp).
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "base/settings.hpp"
#include "cli/exit_code.hpp"

namespace adze::cli {

struct Context;

// An option that belongs to one command. Settings bring their own flags.
struct Option {
  std::string_view flags;    // "-f,--file"
  std::string_view value;    // "FILE"; empty: a flag without a value
  std::string_view help;     // empty: not listed
  std::string_view refusal;  // not empty: using it is an error that says this
};

struct Positional {
  std::string_view name;  // "MODEL"
  std::string_view help;
  bool required = true;
  bool many = false;  // takes all the words that are left
};

struct Example {
  std::string_view command;
  std::string_view what;
};

struct Command {
  std::string_view name;
  std::string_view summary;      // one line, for the list of commands
  std::string_view description;  // a paragraph or none
  std::span<const Positional> positionals;
  std::span<const Option> options;
  std::span<const SettingGroup> settings;  // whose flags it takes; output always
  std::span<const Example> examples;
  Result<ExitCode> (*run)(Context&);
};

// In the order of --help.
std::span<const Command* const> commands();
const Command* find_command(std::string_view name);

// Whether the command takes this setting's flags.
bool takes_setting(const Command& command, const SettingRow& row);

// "--top-k" of "-k,--top-k", without the dashes.
std::string_view long_name(std::string_view flags);

}  // namespace adze::cli
