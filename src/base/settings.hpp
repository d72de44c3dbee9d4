// The one settings type. Values come from defaults ← file ← environment ← flags, and each remembers where it came from.
// The rows (settings_rows.cpp) are the only place that knows a setting's key, flag, variable, range and help; flags,
// the config file, `adze config`, the man page, the completions and docs/settings.md are all made from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace adze {

// An empty optional means "what the model says" (its metadata or generation_config).
struct Settings {
  // Engine.
  std::int64_t threads = 0;  // 0: one per core that this process may use
  std::int64_t context = 0;  // tokens; 0: the model's own, as far as memory allows
  std::string kv_type = "auto";
  std::string compute = "auto";
  std::string cpu = "auto";
  std::int64_t chunk = 0;  // prompt rows per forward; 0: chosen
  bool concurrent = false;
  std::string speculation = "auto";  // auto: draft where a draft model is named, else ngram
  std::string draft_model;
  std::string profile = "auto";  // auto: where adze tune keeps it, off: none, else a file
  bool mmap = true;
  bool mlock = false;
  std::optional<std::string> rope_scaling;
  std::optional<double> rope_base;
  std::optional<double> rope_factor;
  std::optional<std::int64_t> rope_original_context;

  // Sampling, in the order the samplers run.
  std::vector<std::string> logit_bias;  // ID=BIAS
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::int64_t penalty_window = 64;  // tokens; -1: all of them
  double dry_multiplier = 0.0;       // 0: off
  double dry_base = 1.75;
  std::int64_t dry_allowed_length = 2;  // tokens
  std::int64_t dry_window = -1;         // tokens; -1: all of them
  std::vector<std::string> dry_breakers;
  std::optional<std::int64_t> top_k;
  std::optional<double> typical_p;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> temperature;
  std::optional<std::int64_t> seed;  // empty: a fresh one per run, printed by --verbose

  // Where an answer ends.
  std::optional<std::int64_t> max_tokens;  // empty: until the end of the answer or of the context
  std::vector<std::string> stop;
  std::vector<std::string> stop_ids;
  std::vector<std::string> allowed_ids;
  std::vector<std::string> banned_ids;
  std::optional<std::int64_t> top_logprobs;
  bool ignore_eos = false;

  // Chat.
  std::optional<std::string> system;
  std::string thinking = "auto";

  // Hub and files.
  std::string hub_endpoint = "https://huggingface.co";
  std::string hub_token;
  std::string models_dir;  // empty: $XDG_DATA_HOME/adze/models

  // Files that Adze makes for itself.
  std::string cache_dir;  // empty: $XDG_CACHE_HOME/adze
  std::string packs = "auto";
  double pack_budget = 20;  // GB (10^9 bytes)

  // Output.
  bool quiet = false;
  bool verbose = false;
};

enum class SettingGroup : std::uint8_t { engine, sampling, ending, chat, hub, cache, output };

using SettingMember =
    std::variant<bool Settings::*, std::int64_t Settings::*, double Settings::*, std::string Settings::*,
                 std::vector<std::string> Settings::*, std::optional<std::int64_t> Settings::*,
                 std::optional<double> Settings::*, std::optional<std::string> Settings::*>;

struct SettingRow {
  std::string_view name;  // the key in the file: "top_p"
  SettingMember member;
  SettingGroup group;
  std::string_view flags;        // "-t,--threads"; a bool that is on by default is spelled "--no-mmap"
  std::string_view environment;  // variables, the first that is set wins: "ADZE_HUB_TOKEN HF_TOKEN"
  std::string_view value;        // what the help calls the value: "N"; or its choices: "f16|q8_0"
  std::string_view help;
  double least = -std::numeric_limits<double>::infinity();  // numbers only, both ends included
  double most = std::numeric_limits<double>::infinity();
  bool secret = false;  // `adze config` says only whether it is set
};

std::span<const SettingRow> setting_rows();
const SettingRow* find_setting(std::string_view name);
std::string_view group_title(SettingGroup group);

enum class SettingSource : std::uint8_t { fallback, file, environment, flag };

struct SettingOrigin {
  SettingSource source = SettingSource::fallback;
  std::string where;  // "config.toml:3", "ADZE_THREADS", "--threads"
};

// Settings under construction. Not thread-safe; made once at start.
class SettingsBuilder {
 public:
  SettingsBuilder();

  // Parses `text` for the row and stores it; a later source replaces an earlier one, a list grows within one source.
  // Errors: invalid_argument, naming the place, the value and what would be accepted.
  Status set(const SettingRow& row, std::string_view text, SettingOrigin origin);

  // `key = value` lines, `#` comments, optional double quotes. Errors: invalid_argument with file and line (unknown key
  // with the nearest known one), io. A file that is not there is an error only where `required`.
  Status read_file(const std::filesystem::path& path, bool required);

  // `lookup` is getenv or a test's own; nothing means "not set". An empty variable counts as not set.
  using Lookup = const char* (*)(const char* name);
  Status read_environment(Lookup lookup);

  const Settings& settings() const { return settings_; }
  const SettingOrigin& origin(const SettingRow& row) const;

 private:
  Settings settings_;
  std::vector<SettingOrigin> origins_;  // by row
};

// The value as the config file would spell it; "" for an empty optional or list.
std::string format_setting(const SettingRow& row, const Settings& settings);

// $variable/adze, else $HOME/in_home/adze; empty without either.
std::filesystem::path adze_folder(SettingsBuilder::Lookup lookup, const char* variable, std::string_view in_home);

// The file that is read when --config names none: $ADZE_CONFIG, else $XDG_CONFIG_HOME/adze/config.toml, else
// ~/.config/adze/config.toml. Empty when there is no home directory.
std::filesystem::path default_config_path(SettingsBuilder::Lookup lookup);

// Where files that Adze makes for itself live: `setting` where it is not empty, else $XDG_CACHE_HOME/adze, else
// ~/.cache/adze. Empty when there is no home directory.
std::filesystem::path cache_directory(std::string_view setting, SettingsBuilder::Lookup lookup);

}  // namespace adze
