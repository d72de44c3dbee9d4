#include "base/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <sstream>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "base/suggest.hpp"

namespace adze {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

tl::unexpected<Error> refuse(const SettingRow& row, const SettingOrigin& origin, std::string_view text,
                             std::string_view wanted) {
  const std::string_view shown = row.secret ? std::string_view("(hidden)") : text;
  return fail(ErrorCode::invalid_argument, fmt::format("{}: '{}' is not a value for {}", origin.where, shown, row.name),
              fmt::format("{} takes {}.", row.name, wanted));
}

// "a number from 0 to 1", "a whole number of at least 1"
std::string range_words(const SettingRow& row, std::string_view kind) {
  const bool low = std::isfinite(row.least);
  const bool high = std::isfinite(row.most);
  if (low && high) return fmt::format("{} from {} to {}", kind, row.least, row.most);
  if (low) return fmt::format("{} of at least {}", kind, row.least);
  return std::string(kind);
}

template <class Number>
std::optional<Number> parse_number(const SettingRow& row, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  const auto wide = static_cast<double>(value);
  if (!(wide >= row.least && wide <= row.most)) return std::nullopt;  // also refuses NaN
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  for (const std::string_view yes : {"true", "yes", "on", "1"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "no", "off", "0"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

// A value column with a bar lists the choices.
bool is_choice(const SettingRow& row, std::string_view text) {
  if (row.value.find('|') == std::string_view::npos) return true;
  std::string_view rest = row.value;
  while (!rest.empty()) {
    const auto bar = rest.find('|');
    if (rest.substr(0, bar) == text) return true;
    rest = bar == std::string_view::npos ? std::string_view{} : rest.substr(bar + 1);
  }
  return false;
}

std::string choice_words(std::string_view choices) {
  std::string words = "one of ";
  for (const char c : choices) words += c == '|' ? std::string(", ") : std::string(1, c);
  return words;
}

// Stores the text in the member the row points at, by the member's own type.
struct Assign {
  Settings& settings;
  const SettingRow& row;
  std::string_view text;
  const SettingOrigin& origin;
  bool append;  // a list that grows within one source

  Status operator()(bool Settings::* member) const {
    const auto value = parse_bool(text);
    if (!value) return refuse(row, origin, text, "true or false");
    settings.*member = *value;
    return {};
  }
  Status operator()(std::int64_t Settings::* member) const { return number<std::int64_t>(settings.*member); }
  Status operator()(double Settings::* member) const { return number<double>(settings.*member); }
  Status operator()(std::optional<std::int64_t> Settings::* member) const {
    return number<std::int64_t>(settings.*member);
  }
  Status operator()(std::optional<double> Settings::* member) const { return number<double>(settings.*member); }
  Status operator()(std::string Settings::* member) const { return words(settings.*member); }
  Status operator()(std::optional<std::string> Settings::* member) const { return words(settings.*member); }
  Status operator()(std::vector<std::string> Settings::* member) const {
    if (!append) (settings.*member).clear();
    (settings.*member).emplace_back(text);
    return {};
  }

  template <class Number, class Target>
  Status number(Target& target) const {
    const auto value = parse_number<Number>(row, text);
    constexpr bool kWhole = std::is_same_v<Number, std::int64_t>;
    if (!value) return refuse(row, origin, text, range_words(row, kWhole ? "a whole number" : "a number"));
    const Number parsed = *value;
    target = parsed;
    return {};
  }
  template <class Target>
  Status words(Target& target) const {
    if (!is_choice(row, text)) return refuse(row, origin, text, choice_words(row.value));
    target = std::string(text);
    return {};
  }
};

std::size_t row_index(const SettingRow& row) { return static_cast<std::size_t>(&row - setting_rows().data()); }

// A double-quoted value may hold '#' and the escapes \" \\ \n \t; a bare one ends at '#'.
Result<std::string> unquote(std::string_view text, std::string_view where) {
  if (text.empty() || text.front() != '"') return std::string(trim(text.substr(0, text.find('#'))));
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::string_view rest = trim(text.substr(i + 1));
      if (!rest.empty() && rest.front() != '#') {
        return fail(ErrorCode::invalid_argument, fmt::format("{}: '{}' follows the closing quote", where, rest),
                    "Put the whole value between the quotes.");
      }
      return value;
    }
    if (c != '\\') {
      value += c;
      continue;
    }
    const char escaped = ++i < text.size() ? text[i] : '\0';
    switch (escaped) {
      case 'n': value += '\n'; break;
      case 't': value += '\t'; break;
      case '"':
      case '\\': value += escaped; break;
      default:
        return fail(ErrorCode::invalid_argument, fmt::format("{}: unknown escape in a quoted value", where),
                    R"(Use \", \\, \n or \t.)");
    }
  }
  return fail(ErrorCode::invalid_argument, fmt::format("{}: the quoted value has no closing quote", where),
              "End it with a double quote.");
}

}  // namespace

const SettingRow* find_setting(std::string_view name) {
  const auto rows = setting_rows();
  const auto found = std::ranges::find(rows, name, &SettingRow::name);
  return found == rows.end() ? nullptr : &*found;
}

SettingsBuilder::SettingsBuilder() : origins_(setting_rows().size()) {}

const SettingOrigin& SettingsBuilder::origin(const SettingRow& row) const { return origins_[row_index(row)]; }

Status SettingsBuilder::set(const SettingRow& row, std::string_view text, SettingOrigin origin) {
  SettingOrigin& known = origins_[row_index(row)];
  const bool append = known.source == origin.source && origin.source != SettingSource::fallback;
  ADZE_TRY_STATUS(std::visit(Assign{settings_, row, text, origin, append}, row.member));
  known = std::move(origin);
  return {};
}

Status SettingsBuilder::read_file(const std::filesystem::path& path, bool required) {
  auto text = adze::read_file(path, limits::kMaxConfigBytes);
  if (!text) {
    if (text.error().code == ErrorCode::not_found && !required) return {};
    return tl::unexpected<Error>(std::move(text.error()));
  }
  std::istringstream lines(*text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string_view content = trim(line);
    if (content.empty() || content.front() == '#') continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    const auto equals = content.find('=');
    if (equals == std::string_view::npos) {
      return fail(ErrorCode::invalid_argument, fmt::format("{}: '{}' is not 'key = value'", where, content),
                  "Write one setting per line; adze config lists them.");
    }
    const std::string_view key = trim(content.substr(0, equals));
    const SettingRow* row = find_setting(key);
    if (row == nullptr) {
      std::vector<std::string_view> names;
      for (const SettingRow& known : setting_rows()) names.push_back(known.name);
      const std::string hint = did_you_mean(key, names);
      return fail(ErrorCode::invalid_argument, fmt::format("{}: there is no setting '{}'", where, key),
                  hint.empty() ? "adze config lists the settings." : hint);
    }
    const SettingOrigin& earlier = origins_[row_index(*row)];
    const bool is_list = std::holds_alternative<std::vector<std::string> Settings::*>(row->member);
    if (!is_list && earlier.source == SettingSource::file) {
      return fail(ErrorCode::invalid_argument, fmt::format("{}: {} was set before, at {}", where, key, earlier.where),
                  "Keep one of the two lines.");
    }
    ADZE_TRY(const std::string value, unquote(trim(content.substr(equals + 1)), where));
    ADZE_TRY_STATUS(set(*row, value, {SettingSource::file, where}));
  }
  return {};
}

Status SettingsBuilder::read_environment(Lookup lookup) {
  for (const SettingRow& row : setting_rows()) {
    std::string_view names = row.environment;
    while (!names.empty()) {
      const auto space = names.find(' ');
      const std::string name(names.substr(0, space));
      const char* value = lookup(name.c_str());
      if (value != nullptr && *value != '\0') {
        ADZE_TRY_STATUS(set(row, value, {SettingSource::environment, name}));
        break;
      }
      names = space == std::string_view::npos ? std::string_view{} : names.substr(space + 1);
    }
  }
  return {};
}

std::string format_setting(const SettingRow& row, const Settings& settings) {
  struct Format {
    const Settings& settings;
    std::string operator()(bool Settings::* m) const { return settings.*m ? "true" : "false"; }
    std::string operator()(std::int64_t Settings::* m) const { return fmt::to_string(settings.*m); }
    std::string operator()(double Settings::* m) const { return fmt::to_string(settings.*m); }
    std::string operator()(std::string Settings::* m) const { return settings.*m; }
    std::string operator()(std::vector<std::string> Settings::* m) const {
      return fmt::format("{}", fmt::join(settings.*m, ", "));
    }
    std::string operator()(std::optional<std::int64_t> Settings::* m) const {
      return settings.*m ? fmt::to_string(*(settings.*m)) : std::string{};
    }
    std::string operator()(std::optional<double> Settings::* m) const {
      return settings.*m ? fmt::to_string(*(settings.*m)) : std::string{};
    }
    std::string operator()(std::optional<std::string> Settings::* m) const { return (settings.*m).value_or(""); }
  };
  return std::visit(Format{settings}, row.member);
}

std::filesystem::path adze_folder(SettingsBuilder::Lookup lookup, const char* variable, std::string_view in_home) {
  const auto set = [&](const char* name) {
    const char* value = lookup(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto folder = set(variable); !folder.empty()) return folder / "adze";
  if (const auto home = set("HOME"); !home.empty()) return home / in_home / "adze";
  return {};
}

std::filesystem::path default_config_path(SettingsBuilder::Lookup lookup) {
  const char* named = lookup("ADZE_CONFIG");
  if (named != nullptr && *named != '\0') return named;
  const std::filesystem::path folder = adze_folder(lookup, "XDG_CONFIG_HOME", ".config");
  return folder.empty() ? folder : folder / "config.toml";
}

std::filesystem::path cache_directory(std::string_view setting, SettingsBuilder::Lookup lookup) {
  return setting.empty() ? adze_folder(lookup, "XDG_CACHE_HOME", ".cache") : std::filesystem::path(setting);
}

}  // namespace adze
