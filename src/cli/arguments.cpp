// The only file that sees CLI11: one parser per call, made from the rows of the command that was asked for.
#include "cli/arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/suggest.hpp"
#include "cli/utf8.hpp"

namespace adze::cli {
namespace {

constexpr std::string_view kHelpFlags = "-h,--help";
constexpr std::string_view kConfigFlags = "--config";

// A bool that is on by default has only its negative flag.
bool is_negative(const SettingRow& row) { return row.flags.find("--no-") != std::string_view::npos; }

bool is_bool(const SettingRow& row) { return std::holds_alternative<bool Settings::*>(row.member); }

// Every flag the command knows, for "did you mean".
std::vector<std::string_view> known_flags(const Command& command) {
  std::vector<std::string_view> names{"--help", kConfigFlags};
  const auto add = [&](std::string_view flags) {
    while (!flags.empty()) {
      const auto comma = flags.find(',');
      names.push_back(flags.substr(0, comma));
      flags = comma == std::string_view::npos ? std::string_view{} : flags.substr(comma + 1);
    }
  };
  for (const Option& option : command.options) add(option.flags);
  for (const SettingRow& row : setting_rows()) {
    if (takes_setting(command, row)) add(row.flags);
  }
  return names;
}

tl::unexpected<Error> usage_error(const Command& command, std::string message, std::string hint = {}) {
  if (hint.empty()) hint = fmt::format("adze {} --help lists what it takes.", command.name);
  return fail(ErrorCode::invalid_argument, std::move(message), std::move(hint));
}

// The parser's own words, made into ours: CLI11 reports by exception, which ends here.
tl::unexpected<Error> explain(const Command& command, const CLI::ParseError& error, const CLI::App& parser) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = parser.remaining();
    const std::string word = extras.empty() ? std::string{} : extras.front();
    if (word.starts_with('-')) {
      return usage_error(command, fmt::format("adze {} has no flag '{}'", command.name, word),
                         did_you_mean(word.substr(0, word.find('=')), known_flags(command)));
    }
    return usage_error(command, fmt::format("adze {} takes no further argument '{}'", command.name, word));
  }
  return usage_error(command, fmt::format("adze {}: {}", command.name, error.what()));
}

// What a person writes for a model or a screen has to be text; file names need not be.
Status check_text(const Command& command, std::string_view flags, std::string_view metavar, std::string_view value) {
  if (metavar != "TEXT") return {};
  const auto bad = first_bad_utf8(value);
  if (!bad) return {};
  return usage_error(command, fmt::format("{} is not UTF-8 at byte {}", flags, *bad),
                     "Use a terminal with a UTF-8 locale.");
}

}  // namespace

bool Arguments::has(std::string_view option) const { return std::ranges::count(options_, option, &Given::option) > 0; }

std::optional<std::string> Arguments::value(std::string_view option) const {
  for (auto given = options_.rbegin(); given != options_.rend(); ++given) {
    if (given->option == option) return given->value;
  }
  return std::nullopt;
}

std::vector<std::string> Arguments::values(std::string_view option) const {
  std::vector<std::string> values;
  for (const Given& given : options_) {
    if (given.option == option) values.push_back(given.value);
  }
  return values;
}

std::optional<std::string> Arguments::positional(std::size_t index) const {
  if (index >= positionals_.size()) return std::nullopt;
  return positionals_[index];
}

std::optional<std::string> Arguments::rest(std::size_t index) const {
  if (index >= positionals_.size()) return std::nullopt;
  return fmt::format("{}",
                     fmt::join(positionals_.begin() + static_cast<std::ptrdiff_t>(index), positionals_.end(), " "));
}

Result<Arguments> parse_arguments(const Command& command, std::span<const char* const> words) {
  Arguments arguments;
  CLI::App parser;
  parser.set_help_flag();
  parser.add_flag_callback(std::string(kHelpFlags), [&] { arguments.wants_help_ = true; });
  parser.add_option_function<std::string>(std::string(kConfigFlags),
                                          [&](const std::string& file) { arguments.config_file_ = file; });
  for (const Option& option : command.options) {
    const std::string_view name = long_name(option.flags);
    if (option.value.empty()) {
      parser.add_flag_callback(std::string(option.flags),
                               [&arguments, name] { arguments.options_.push_back({name, {}}); });
    } else {
      parser
          .add_option_function<std::vector<std::string>>(std::string(option.flags),
                                                         [&arguments, name](const std::vector<std::string>& values) {
                                                           for (const std::string& value : values)
                                                             arguments.options_.push_back({name, value});
                                                         })
          ->allow_extra_args(false);
    }
  }
  for (const SettingRow& row : setting_rows()) {
    if (!takes_setting(command, row)) continue;
    const std::string flag = fmt::format("--{}", long_name(row.flags));
    if (is_bool(row)) {
      const std::string value = is_negative(row) ? "false" : "true";
      parser.add_flag_callback(std::string(row.flags),
                               [&arguments, &row, flag, value] { arguments.settings_.push_back({&row, flag, value}); });
    } else {
      parser
          .add_option_function<std::vector<std::string>>(
              std::string(row.flags),
              [&arguments, &row, flag](const std::vector<std::string>& values) {
                for (const std::string& value : values) arguments.settings_.push_back({&row, flag, value});
              })
          ->allow_extra_args(false);
    }
  }
  parser.add_option("words", arguments.positionals_);

  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    parser.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return explain(command, error, parser);
  }
  if (arguments.wants_help_) return arguments;

  for (const Option& option : command.options) {
    if (!option.refusal.empty() && arguments.has(long_name(option.flags))) {
      return fail(ErrorCode::unsupported_feature, fmt::format("{}: {}", option.flags, option.refusal),
                  "Leave the flag out.");
    }
  }
  for (const Arguments::GivenSetting& setting : arguments.settings_) {
    ADZE_TRY_STATUS(check_text(command, setting.flag, setting.row->value, setting.value));
  }
  const std::size_t given = arguments.positionals_.size();
  for (std::size_t i = given; i < command.positionals.size(); ++i) {
    if (command.positionals[i].required) {
      return usage_error(command, fmt::format("adze {} needs {}", command.name, command.positionals[i].name),
                         fmt::format("{}: {}.", command.positionals[i].name, command.positionals[i].help));
    }
  }
  const bool open_ended = !command.positionals.empty() && command.positionals.back().many;
  if (given > command.positionals.size() && !open_ended) {
    return usage_error(command, fmt::format("adze {} takes no further argument '{}'", command.name,
                                            arguments.positionals_[command.positionals.size()]));
  }
  return arguments;
}

Result<int> parse_count(std::string_view option, std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    return fail(ErrorCode::invalid_argument, fmt::format("{}: '{}' is not a count", option, text),
                fmt::format("Give a whole number from {} to {}.", least, most));
  }
  return value;
}

Result<std::vector<int>> parse_counts(std::string_view option, std::string_view text, int least, int most) {
  std::vector<int> counts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    ADZE_TRY(const int count, parse_count(option, text.substr(at, comma - at), least, most));
    counts.push_back(count);
    at = comma + 1;
  }
  return counts;
}

Status apply_flags(const Arguments& arguments, SettingsBuilder& settings) {
  for (const Arguments::GivenSetting& given : arguments.settings_) {
    ADZE_TRY_STATUS(settings.set(*given.row, given.value, {SettingSource::flag, given.flag}));
  }
  return {};
}

}  // namespace adze::cli
