// The small JSON files beside a checkpoint's weights (config.json, the index of its shards): read whole, one object,
// bounded in depth, no key twice in one object. A null member counts as absent. Immutable and cheap to copy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace adze::format {

class JsonObject {
 public:
  // `file` is used in messages. Errors: corrupt_file (no JSON, no object, a key twice, nested too deeply).
  static Result<JsonObject> parse(std::string_view text, std::string file);

  bool has(std::string_view key) const;       // there, and not null
  bool contains(std::string_view key) const;  // there, perhaps null
  std::vector<std::string> keys() const;      // sorted, nulls included
  const std::string& file() const { return file_; }

  // Nothing where the member is absent. Errors: corrupt_file for a member of another kind, naming file, key and value.
  Result<std::optional<std::int64_t>> integer(std::string_view key) const;  // a whole number, 4096.0 too
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::optional<JsonObject>> object(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> texts(std::string_view key) const;      // an array of strings
  Result<std::optional<std::vector<std::int64_t>>> integers(std::string_view key) const;  // an array, or one number

  Result<std::optional<std::vector<double>>> numbers(std::string_view key) const;  // an array of numbers

  // The member as JSON; shortened for messages.
  std::string json(std::string_view key) const;
  std::string shown(std::string_view key) const;
  bool is_array(std::string_view key) const;
  bool is_object(std::string_view key) const;

 private:
  struct Value;
  JsonObject(std::shared_ptr<const Value> value, std::string file, std::string path)
      : value_(std::move(value)), file_(std::move(file)), path_(std::move(path)) {}
  tl::unexpected<Error> wrong(std::string_view key, std::string_view expected) const;

  std::shared_ptr<const Value> value_;
  std::string file_;
  std::string path_;  // of this object inside the file: "text_config."
};

}  // namespace adze::format
