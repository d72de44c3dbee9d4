// The man page, in roff's man macros.
#include <fmt/format.h>

#include "cli/help.hpp"
#include "cli/version.hpp"

namespace adze::cli {
namespace {

// A line of text that roff takes literally.
std::string roff(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out = "\\&";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

void append_option(std::string& out, std::string_view flags, std::string_view value, std::string_view help) {
  std::string names;
  while (!flags.empty()) {
    const auto comma = flags.find(',');
    if (!names.empty()) names += ", ";
    names += fmt::format("\\fB{}\\fR", roff(flags.substr(0, comma)));
    flags = comma == std::string_view::npos ? std::string_view{} : flags.substr(comma + 1);
  }
  if (!value.empty()) names += fmt::format(" \\fI{}\\fR", roff(value));
  out += fmt::format(".TP\n{}\n{}\n", names, roff(help));
}

}  // namespace

std::string man_page() {
  std::string out = fmt::format(".TH ADZE 1 \"\" \"adze {}\" \"User Commands\"\n", version());
  out += ".SH NAME\nadze \\- run large language models on your own machine\n";
  out += ".SH SYNOPSIS\n.B adze\n.I COMMAND\n[\\fIOPTIONS\\fR] ...\n.SH COMMANDS\n";
  for (const Command* command : commands()) {
    std::string words;
    for (const Positional& p : command->positionals) {
      words += p.required ? fmt::format(" \\fI{}\\fR", p.name) : fmt::format(" [\\fI{}\\fR]", p.name);
    }
    out += fmt::format(".SS \"adze {}\"\n\\fBadze {}\\fR{}\n.PP\n{}\n", roff(command->name), roff(command->name), words,
                       roff(command->description.empty() ? command->summary : command->description));
    for (const Positional& p : command->positionals) append_option(out, p.name, "", p.help);
    for (const Option& option : command->options) {
      if (!option.help.empty()) append_option(out, option.flags, option.value, option.help);
    }
    std::string groups;
    for (const SettingGroup group : command->settings) {
      groups += fmt::format("{}{}", groups.empty() ? "" : ", ", group_title(group));
    }
    if (!groups.empty()) out += fmt::format(".PP\nTakes the settings under {}.\n", roff(groups));
    for (const Example& example : command->examples) {
      out += fmt::format(".PP\n{}:\n.PP\n.EX\n    {}\n.EE\n", roff(example.what), roff(example.command));
    }
  }
  out += ".SH SETTINGS\nDefaults, then the configuration file, then environment variables, then flags.\n";
  std::string_view section;
  for (const SettingRow& row : setting_rows()) {
    if (group_title(row.group) != section) out += fmt::format(".SS \"{}\"\n", section = group_title(row.group));
    std::string help = fmt::format("{}. Key: {}", row.help, row.name);
    if (!row.environment.empty()) help += fmt::format("; variable: {}", row.environment);
    append_option(out, row.flags, row.value, help + ".");
  }
  out += ".SH EXIT STATUS\n";
  for (const ExitCodeRow& row : exit_code_rows()) {
    out += fmt::format(".TP\n.B {}\n{}\n", static_cast<int>(row.code), roff(row.meaning));
  }
  out += ".SH FILES\n.TP\n~/.config/adze/config.toml\nSettings, one \\fIkey = value\\fR per line.\n";
  out += ".TP\n~/.local/share/adze/models\nPulled models.\n";
  out +=
      ".TP\n~/.cache/adze/packs\nWeights in the order in which kernels read them; may be removed (adze cache packs).\n";
  out += ".TP\n~/.cache/adze/profiles\nWhat adze tune found; may be removed.\n";
  return out;
}

}  // namespace adze::cli
