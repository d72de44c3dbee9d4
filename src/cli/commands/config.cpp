#include <fmt/format.h>

#include <cstdlib>

#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/help.hpp"
#include "cli/json_writer.hpp"

namespace adze::cli {
namespace {

constexpr Option kOptions[] = {
    {"--json", "", "Print an array of objects: key, value, source, where", ""},
    {"--markdown", "", "Print docs/settings.md", ""},
    {"--exit-codes", "", "Print docs/exit-codes.md", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::sampling, SettingGroup::ending,
                                      SettingGroup::chat,   SettingGroup::hub,      SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze config", "Every setting, its value and where the value comes from"},
    {"adze config > settings.toml", "The output is itself a configuration file, for --config settings.toml"},
};

std::string_view source_name(SettingSource source) {
  switch (source) {
    case SettingSource::fallback: return "default";
    case SettingSource::file: return "file";
    case SettingSource::environment: return "environment";
    case SettingSource::flag: return "flag";
  }
  return "";
}

// What a line of the file would hold; a secret is never shown.
std::string shown_value(const SettingRow& row, const Settings& settings) {
  std::string value = format_setting(row, settings);
  return row.secret && !value.empty() ? "(hidden)" : value;
}

// Bare where the file format allows it.
std::string quoted_value(const SettingRow& row, const std::string& value) {
  const bool number_or_flag = !std::holds_alternative<std::string Settings::*>(row.member) &&
                              !std::holds_alternative<std::optional<std::string> Settings::*>(row.member) &&
                              !std::holds_alternative<std::vector<std::string> Settings::*>(row.member);
  if (number_or_flag) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + '"';
}

std::string as_json(const Context& context) {
  JsonWriter json;
  json.begin_array();
  for (const SettingRow& row : setting_rows()) {
    const SettingOrigin& origin = context.builder.origin(row);
    json.begin_object()
        .field("key", row.name)
        .field("value", shown_value(row, context.settings()))
        .field("source", source_name(origin.source))
        .field("where", origin.where)
        .end_object();
  }
  return json.end_array().take();
}

Result<ExitCode> run_config(Context& context) {
  if (context.arguments.has("markdown")) {
    context.console.print(settings_markdown());
    return ExitCode::ok;
  }
  if (context.arguments.has("exit-codes")) {
    context.console.print(exit_codes_markdown());
    return ExitCode::ok;
  }
  if (context.arguments.has("json")) {
    context.console.print(as_json(context));
    return ExitCode::ok;
  }
  std::string_view section;
  for (const SettingRow& row : setting_rows()) {
    if (group_title(row.group) != section) {
      context.console.print(fmt::format("{}# {}\n", section.empty() ? "" : "\n", group_title(row.group)));
      section = group_title(row.group);
    }
    const SettingOrigin& origin = context.builder.origin(row);
    const std::string value = shown_value(row, context.settings());
    // What has no value of its own is a comment, so that the output can be read back.
    const bool commented = value.empty() || row.secret;
    const std::string line = fmt::format("{}{} = {}", commented ? "# " : "", row.name, quoted_value(row, value));
    context.console.print(fmt::format("{:<46}  # {}{}{}\n", line, source_name(origin.source),
                                      origin.where.empty() ? "" : ": ", origin.where));
  }
  return ExitCode::ok;
}

}  // namespace

constinit const Command kConfig{.name = "config",
                                .summary = "Print every setting and where its value comes from",
                                .description = {},
                                .positionals = {},
                                .options = kOptions,
                                .settings = kSettings,
                                .examples = kExamples,
                                .run = run_config};

}  // namespace adze::cli
