#include "cli/help.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace adze::cli {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kIndent = 30;  // where the help of an option starts

// "-f, --file FILE"
std::string spell(std::string_view flags, std::string_view value) {
  std::string text;
  for (const char c : flags) text += c == ',' ? std::string(", ") : std::string(1, c);
  if (!value.empty()) text += fmt::format(" {}", value);
  return text;
}

// Appends `text` broken at spaces, every line but the first indented.
void append_wrapped(std::string& out, std::string_view text, std::size_t indent) {
  std::size_t room = kWidth - indent;
  bool first = true;
  while (!text.empty()) {
    std::size_t cut = text.size();
    if (cut > room) {
      cut = text.rfind(' ', room);
      if (cut == std::string_view::npos) cut = text.find(' ');
      if (cut == std::string_view::npos) cut = text.size();
    }
    if (!first) out.append(indent, ' ');
    first = false;
    out += text.substr(0, cut);
    out += '\n';
    text.remove_prefix(std::min(text.size(), cut + 1));
    room = kWidth - indent;
  }
}

void append_row(std::string& out, std::string_view left, std::string_view help) {
  std::string line = fmt::format("  {}", left);
  if (line.size() + 2 > kIndent) {
    out += line + '\n';
    line.clear();
  }
  out += line;
  out.append(kIndent - line.size(), ' ');
  append_wrapped(out, help, kIndent);
}

std::string usage_line(const Command& command) {
  std::string line = fmt::format("adze {} [OPTIONS]", command.name);
  for (const Positional& p : command.positionals) {
    const std::string name = fmt::format("{}{}", p.name, p.many ? "..." : "");
    line += p.required ? fmt::format(" {}", name) : fmt::format(" [{}]", name);
  }
  return line;
}

// Calls f(title, row) for the settings that the command takes, in the order of the rows.
template <class F>
void for_each_setting(const Command& command, F f) {
  for (const SettingRow& row : setting_rows()) {
    if (takes_setting(command, row)) f(group_title(row.group), row);
  }
}

std::string with_default(const SettingRow& row) {
  const std::string value = format_setting(row, Settings{});
  const bool flag = value == "true" || value == "false";
  if (flag || value.empty()) return std::string(row.help);
  return fmt::format("{} [{}]", row.help, value);
}

// What holds where a setting of sampling has no value.
std::string_view unset_words(const SettingRow& row) {
  if (row.group != SettingGroup::sampling) return "";
  for (const std::string_view name : {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}) {
    if (row.name == name) return "the model's";
  }
  for (const std::string_view name : {"typical_p", "presence_penalty", "frequency_penalty"}) {
    if (row.name == name) return "off";
  }
  return row.name == "seed" ? "random" : "";
}

}  // namespace

std::string program_help() {
  std::string out = "adze: run large language models on your own machine\n\nusage: adze COMMAND [OPTIONS] ...\n\n";
  for (const Command* command : commands()) append_row(out, command->name, command->summary);
  out += "\nadze COMMAND --help says what a command takes; adze config lists the settings.\n\nexit codes:\n";
  for (const ExitCodeRow& row : exit_code_rows())
    append_row(out, fmt::to_string(static_cast<int>(row.code)), row.meaning);
  return out;
}

std::string command_help(const Command& command) {
  std::string out = fmt::format("usage: {}\n\n", usage_line(command));
  append_wrapped(out, command.description.empty() ? command.summary : command.description, 0);
  if (!command.positionals.empty()) out += "\narguments:\n";
  for (const Positional& p : command.positionals) append_row(out, p.name, p.help);
  out += "\noptions:\n";
  for (const Option& option : command.options) {
    if (!option.help.empty()) append_row(out, spell(option.flags, option.value), option.help);
  }
  append_row(out, "-h, --help", "Print this");
  append_row(out, "--config FILE", "Read settings from FILE instead of ~/.config/adze/config.toml");
  std::string_view section;
  for_each_setting(command, [&](std::string_view title, const SettingRow& row) {
    if (title != section) out += fmt::format("\n{}:\n", title);
    section = title;
    append_row(out, spell(row.flags, row.value), with_default(row));
  });
  if (!command.examples.empty()) out += "\nexamples:\n";
  for (const Example& example : command.examples) out += fmt::format("  {}\n      {}\n", example.command, example.what);
  return out;
}

std::string settings_markdown() {
  std::string out =
      "# Settings\n\n"
      "Defaults are overridden by the configuration file, the file by environment variables, these by flags. The file "
      "is\n"
      "`~/.config/adze/config.toml` (or `$XDG_CONFIG_HOME/adze/config.toml`, `$ADZE_CONFIG`, `--config FILE`): one\n"
      "`key = value` per line, `#` starts a comment, double quotes around text that needs them. An unknown key is an\n"
      "error. `adze config` prints every value in force and where it comes from.\n\n"
      "This page is made from the program's own rows: `adze config --markdown`.\n";
  std::string_view section;
  for (const SettingRow& row : setting_rows()) {
    const std::string_view title = group_title(row.group);
    if (title != section) {
      out += fmt::format("\n## {}\n\n| key | flags | variable | default | meaning |\n|---|---|---|---|---|\n", title);
      section = title;
    }
    std::string value = spell(row.flags, row.value);
    for (std::size_t bar = value.find('|'); bar != std::string::npos; bar = value.find('|', bar + 2)) {
      value.insert(bar, "\\");
    }
    std::string fallback = format_setting(row, Settings{});
    if (fallback.empty()) fallback = unset_words(row);
    out += fmt::format("| `{}` | `{}` | {} | {} | {} |\n", row.name, value, row.environment, fallback, row.help);
  }
  return out;
}

std::string exit_codes_markdown() {
  std::string out =
      "# Exit codes\n\nScripts may rely on these numbers. Every failure also prints one sentence, and mostly a hint, "
      "on\n"
      "stderr. A program killed by a closed pipe ends by the signal, as usual.\n\n| code | meaning |\n|---|---|\n";
  for (const ExitCodeRow& row : exit_code_rows())
    out += fmt::format("| {} | {} |\n", static_cast<int>(row.code), row.meaning);
  return out;
}

}  // namespace adze::cli
