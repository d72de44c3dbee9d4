// Everything that tells people what the program takes, made from the rows of commands and settings.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/command.hpp"

namespace adze::cli {

std::string program_help();                        // adze --help
std::string command_help(const Command& command);  // adze COMMAND --help
std::string man_page();                            // roff, section 1
std::string settings_markdown();                   // docs/settings.md
std::string exit_codes_markdown();                 // docs/exit-codes.md
// Errors: invalid_argument for a shell that is not bash, zsh or fish.
Result<std::string> completion_script(std::string_view shell);

}  // namespace adze::cli
