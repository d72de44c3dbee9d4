// What a Hugging Face folder's config.json says, in the words of GGUF: a family declares one table from config keys to
// the metadata keys that it reads anyway, so that hyper-parameters, sampling advice and a converter have one source.
//
// A model_type names the code of transformers that the model was made for, and that code reads the keys of its own
// configuration class and no others. So a table lists all keys of that class; a key that no table lists cannot change
// what the model computes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "format/gguf_writer.hpp"
#include "format/json.hpp"

namespace adze::model {

class ConfigImport;

// One key of config.json. Rows are made by the functions below.
struct ImportRow {
  enum class Action : std::uint8_t {
    integer,  // a whole number, or one for each layer
    number,
    boolean,
    only,     // must be absent or one of the values that the family computes
    ignored,  // changes nothing, or another row's function reads it
    compute,  // by a function, whether the key is there or not
  };
  std::string_view key;
  Action action = Action::ignored;
  std::string_view target{};     // the metadata key without "<architecture>."; for `only`: JSON values with '|' between
  std::string_view otherwise{};  // where the key is absent: its default in transformers, as JSON; empty: none
  std::string_view what{};       // for `only`: what another value would ask for
  Status (*function)(ConfigImport&) = nullptr;
  std::string_view alias{};  // another spelling of the key, read where this one is absent
};

constexpr ImportRow integer_row(std::string_view key, std::string_view target, std::string_view otherwise = {},
                                std::string_view alias = {}) {
  return {.key = key,
          .action = ImportRow::Action::integer,
          .target = target,
          .otherwise = otherwise,
          .what = {},
          .function = nullptr,
          .alias = alias};
}
constexpr ImportRow number_row(std::string_view key, std::string_view target, std::string_view otherwise = {}) {
  return {.key = key, .action = ImportRow::Action::number, .target = target, .otherwise = otherwise};
}
constexpr ImportRow boolean_row(std::string_view key, std::string_view target, std::string_view otherwise = {}) {
  return {.key = key, .action = ImportRow::Action::boolean, .target = target, .otherwise = otherwise};
}
constexpr ImportRow only_row(std::string_view key, std::string_view values, std::string_view what) {
  return {.key = key, .action = ImportRow::Action::only, .target = values, .what = what};
}
constexpr ImportRow ignored_row(std::string_view key) { return {.key = key}; }
constexpr ImportRow computed_row(std::string_view key, Status (*function)(ConfigImport&)) {
  return {.key = key, .action = ImportRow::Action::compute, .function = function};
}

// Two tables one behind the other.
template <std::size_t A, std::size_t B>
constexpr std::array<ImportRow, A + B> join_rows(const std::array<ImportRow, A>& a, const std::array<ImportRow, B>& b) {
  std::array<ImportRow, A + B> rows;
  std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), rows.begin()));
  return rows;
}

// How the models of some model_types are imported. A row wins over the shared row of its key (see import.cpp).
struct FamilyImport {
  std::span<const std::string_view> model_types;
  std::string_view architecture;  // general.architecture
  std::span<const ImportRow> rows;
  std::int64_t head_size = 0;  // without head_dim; 0: hidden_size shared out among num_attention_heads
};

// An import under way: what a computed row reads and writes. Keys that are written are without "<architecture>.".
class ConfigImport {
 public:
  ConfigImport(const format::JsonObject& config, const FamilyImport& family, format::GgufWriter& out)
      : config_(config), family_(family), out_(out) {}

  const format::JsonObject& config() const { return config_; }
  std::string full(std::string_view target) const;

  // `source`: the config key that the value comes from, for messages.
  void write_integers(std::string_view target, std::span<const std::int64_t> values, std::string_view source);
  void write_integer(std::string_view target, std::int64_t value, std::string_view source);
  void write_number(std::string_view target, double value, std::string_view source);
  void write_numbers(std::string_view target, std::span<const double> values, std::string_view source);
  void write_boolean(std::string_view target, bool value, std::string_view source);
  void write_text(std::string_view target, std::string_view value, std::string_view source);
  void write_booleans(std::string_view target, const std::vector<bool>& values, std::string_view source);

  // head_dim, or what stands for it in this family. Errors: corrupt_file.
  Result<std::int64_t> head_size() const;

  // For messages about a metadata key: it comes from this config key, or would. Returns the full metadata key.
  std::string note(std::string_view target, std::string_view source);
  // Metadata key -> "config.json's head_dim".
  std::vector<std::pair<std::string, std::string>>& sources() { return sources_; }

 private:
  const format::JsonObject& config_;
  const FamilyImport& family_;
  format::GgufWriter& out_;
  std::vector<std::pair<std::string, std::string>> sources_;
};

struct ImportedConfig {
  std::string architecture;
  std::vector<std::pair<std::string, std::string>> sources;  // metadata key -> "config.json's head_dim"
  std::vector<std::string> unknown;                          // keys that no table lists
};

// Writes general.architecture and the keys of `config` (a whole config.json: the text model of a multimodal one is
// found in it). Errors: unsupported_architecture (the model_type, saying which there are), unsupported_feature (a
// setting by name, a quantisation by name), corrupt_file (a value of the wrong kind).
Result<ImportedConfig> import_config(const format::JsonObject& config, format::GgufWriter& out);
// general.sampling.* from generation_config.json; nothing where that says do_sample: false. `sources` as above,
// appended.
Status import_generation_config(const format::JsonObject& config, format::GgufWriter& out,
                                std::vector<std::pair<std::string, std::string>>& sources);

// An error that names the setting, its value and what it asks for: unsupported_feature.
tl::unexpected<Error> refuse_setting(const ConfigImport& import, std::string_view key, std::string_view what);

// Rows' functions that several families share.

// Refuses a model some of whose layers slide (use_sliding_window, sliding_window, max_window_layers, layer_types).
Status import_full_attention(ConfigImport& import);
// Whether each of so many layers slides: as layer_types says, else all but every `period`-th.
Result<std::vector<bool>> sliding_layers(ConfigImport& import, std::int64_t layers, std::int64_t period);
// Refuses a layer_types by which other layers slide than all but every `period`-th.
Status check_layer_types(ConfigImport& import, std::int64_t period);
// query_pre_attn_scalar^-0.5, by default 256, -> attention.scale
Status import_query_scale(ConfigImport& import);
// Rope: rope_theta, rope_scaling, rope_parameters, partial_rotary_factor -> rope.*
Status import_rope(ConfigImport& import);
// The same; `known`: members of rope_parameters that the family reads itself.
Status import_rope(ConfigImport& import, std::span<const std::string_view> known);
// One object of theirs (null: none) to keys that end in `suffix`.
Status import_rope_object(ConfigImport& import, const format::JsonObject* rope, std::optional<double> theta,
                          std::string_view source, std::string_view suffix,
                          std::span<const std::string_view> known = {});

}  // namespace adze::model
