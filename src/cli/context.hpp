// What a command's function gets.
#pragma once

#include "base/settings.hpp"
#include "cli/arguments.hpp"
#include "cli/console.hpp"

namespace adze::cli {

struct Context {
  const Command& command;
  Arguments arguments;
  SettingsBuilder builder;
  Console& console;
  double started_seconds = 0;  // now_seconds() at the start of the program

  const Settings& settings() const { return builder.settings(); }
};

}  // namespace adze::cli
