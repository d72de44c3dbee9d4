// argv turned into values: the command's own options by name, positionals in order, and settings in their builder.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings.hpp"
#include "cli/command.hpp"

namespace adze::cli {

class Arguments {
 public:
  // Options are named by their long flag without dashes.
  bool has(std::string_view option) const;
  std::optional<std::string> value(std::string_view option) const;  // the last one given
  std::vector<std::string> values(std::string_view option) const;

  // The i-th positional, nothing where it was not given; `rest(i)` joins it and all that follow with spaces.
  std::optional<std::string> positional(std::size_t index) const;
  std::optional<std::string> rest(std::size_t index) const;

  bool wants_help() const { return wants_help_; }
  const std::optional<std::string>& config_file() const { return config_file_; }

 private:
  friend Result<Arguments> parse_arguments(const Command& command, std::span<const char* const> words);
  friend Status apply_flags(const Arguments& arguments, SettingsBuilder& settings);

  struct Given {
    std::string_view option;
    std::string value;
  };
  struct GivenSetting {
    const SettingRow* row;
    std::string flag;
    std::string value;
  };
  std::vector<Given> options_;
  std::vector<GivenSetting> settings_;
  std::vector<std::string> positionals_;
  std::optional<std::string> config_file_;
  bool wants_help_ = false;
};

// Words are those after the command's name. Errors: invalid_argument (unknown flag, with the nearest one; missing value
// or positional), unsupported_feature for an option that is refused by name.
Result<Arguments> parse_arguments(const Command& command, std::span<const char* const> words);

// A whole number between `least` and `most`. Errors: invalid_argument, naming the option.
Result<int> parse_count(std::string_view option, std::string_view text, int least, int most);

// Several with commas between them, "512,2048". Errors: the same.
Result<std::vector<int>> parse_counts(std::string_view option, std::string_view text, int least, int most);

// Stores the flags that are settings. Errors: invalid_argument, naming the flag.
Status apply_flags(const Arguments& arguments, SettingsBuilder& settings);

}  // namespace adze::cli
