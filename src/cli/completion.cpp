// Completions for three shells. Each script holds the words of every command; names of pulled models come from
// `adze list` when the shell asks.
#include <fmt/format.h>

#include <iterator>
#include <vector>

#include "cli/help.hpp"

namespace adze::cli {
namespace {

struct Flag {
  std::string_view name;   // "--top-k" or "-k"
  std::string_view value;  // empty: none
  std::string_view help;
};

void split_flags(std::vector<Flag>& out, std::string_view flags, std::string_view value, std::string_view help) {
  while (!flags.empty()) {
    const auto comma = flags.find(',');
    out.push_back({flags.substr(0, comma), value, help});
    flags = comma == std::string_view::npos ? std::string_view{} : flags.substr(comma + 1);
  }
}

std::vector<Flag> flags_of(const Command& command) {
  std::vector<Flag> flags;
  for (const Option& option : command.options) {
    if (!option.help.empty()) split_flags(flags, option.flags, option.value, option.help);
  }
  for (const SettingRow& row : setting_rows()) {
    if (takes_setting(command, row)) split_flags(flags, row.flags, row.value, row.help);
  }
  split_flags(flags, "-h,--help", "", "Print help");
  split_flags(flags, "--config", "FILE", "Read settings from FILE");
  return flags;
}

bool takes_model(const Command& command) {
  return !command.positionals.empty() && command.positionals.front().name.starts_with("MODEL");
}

std::string words_of_choices(std::string_view value) {
  std::string words(value);
  for (char& c : words) {
    if (c == '|') c = ' ';
  }
  return words;
}

// Text inside single quotes, for zsh and fish.
std::string in_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string bash_script() {
  std::string out =
      "# bash completion for adze, made by `adze completion bash`\n"
      "_adze() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags= models=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W '";
  for (const Command* command : commands()) out += fmt::format("{} ", command->name);
  out += "--help --version' -- \"$cur\"))\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n";
  for (const Command* command : commands()) {
    out += fmt::format("    {}) flags='", command->name);
    for (const Flag& flag : flags_of(*command)) out += fmt::format("{} ", flag.name);
    out += fmt::format("'; models={} ;;\n", takes_model(*command) ? 1 : 0);
  }
  out += "  esac\n  case $prev in\n";
  for (const SettingRow& row : setting_rows()) {
    if (row.value.find('|') == std::string_view::npos) continue;
    out += fmt::format("    --{}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n", long_name(row.flags),
                       words_of_choices(row.value));
  }
  out +=
      "  esac\n"
      "  if [[ $cur == -* ]]; then\n    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n    return\n  fi\n"
      "  [ \"$models\" = 1 ] && models=$(adze list --names 2>/dev/null)\n"
      "  COMPREPLY=($(compgen -W \"$models\" -- \"$cur\") $(compgen -f -- \"$cur\"))\n"
      "}\ncomplete -o filenames -F _adze adze\n";
  return out;
}

std::string zsh_script() {
  std::string out =
      "#compdef adze\n# zsh completion for adze, made by `adze completion zsh`\n"
      "_adze_models() { local -a names; names=(${(f)\"$(adze list --names 2>/dev/null)\"}); "
      "_describe 'model' names; _files; }\n"
      "_adze() {\n  if (( CURRENT == 2 )); then\n    local -a names=(\n";
  for (const Command* command : commands()) {
    out += fmt::format("      '{}:{}'\n", command->name, in_quotes(command->summary));
  }
  out +=
      "    )\n    _describe 'command' names\n    return\n  fi\n  local name=$words[2]\n  shift words; (( CURRENT-- "
      "))\n";
  out += "  case $name in\n";
  for (const Command* command : commands()) {
    out += fmt::format("    {}) _arguments", command->name);
    for (const Flag& flag : flags_of(*command)) {
      std::string help;
      for (const char c : flag.help) {
        if (c == '[' || c == ']' || c == ':') help += '\\';
        help += c;
      }
      std::string action;
      if (flag.value.find('|') != std::string_view::npos) {
        action = fmt::format(":value:({})", words_of_choices(flag.value));
      } else if (!flag.value.empty()) {
        action = fmt::format(":{}:{}", flag.value, flag.value.starts_with("FILE") ? "_files" : " ");
      }
      out += fmt::format(" \\\n        '*{}[{}]{}'", flag.name, in_quotes(help), action);
    }
    out += takes_model(*command) ? " \\\n        '1:model:_adze_models' '*:file:_files' ;;\n" : " '*:file:_files' ;;\n";
  }
  out += "  esac\n}\n_adze \"$@\"\n";
  return out;
}

std::string fish_script() {
  std::string out = "# fish completion for adze, made by `adze completion fish`\n";
  for (const Command* command : commands()) {
    out += fmt::format("complete -c adze -n __fish_use_subcommand -f -a {} -d '{}'\n", command->name,
                       in_quotes(command->summary));
    const std::string when = fmt::format("'__fish_seen_subcommand_from {}'", command->name);
    for (const Flag& flag : flags_of(*command)) {
      const bool is_long = flag.name.starts_with("--");
      out +=
          fmt::format("complete -c adze -n {} {} {}", when, is_long ? "-l" : "-s", flag.name.substr(is_long ? 2 : 1));
      if (flag.value.find('|') != std::string_view::npos) {
        out += fmt::format(" -x -a '{}'", words_of_choices(flag.value));
      } else if (!flag.value.empty()) {
        out += " -r";
      }
      out += fmt::format(" -d '{}'\n", in_quotes(flag.help));
    }
    if (takes_model(*command))
      out += fmt::format("complete -c adze -n {} -a '(adze list --names 2>/dev/null)'\n", when);
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  return fail(ErrorCode::invalid_argument, fmt::format("there are no completions for '{}'", shell),
              "Adze has them for bash, zsh and fish.");
}

}  // namespace adze::cli
