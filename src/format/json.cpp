#include "format/json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/limits.hpp"
#include "format/metadata.hpp"

namespace adze::format {

struct JsonObject::Value {
  nlohmann::json json;
};

namespace {

using Json = nlohmann::json;

const Json* member(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> whole(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > 0x1p53) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

Result<JsonObject> JsonObject::parse(std::string_view text, std::string file) {
  const auto refuse = [&](std::string_view problem) {
    return fail(ErrorCode::corrupt_file, fmt::format("{} {}", file, problem), "get the file again");
  };
  // The parser takes a NUL for the end of its input and would not see what follows.
  if (text.find('\0') != text.npos) return refuse("is not valid JSON: it holds a zero byte");
  std::vector<std::set<std::string, std::less<>>> open;  // the keys seen in each object around the current place
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    deep = deep || depth > limits::kJsonMaxDepth;
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end && !open.empty()) open.pop_back();
    if (event == Json::parse_event_t::key && !open.empty()) {
      auto name = parsed.get<std::string>();
      if (!open.back().insert(name).second && twice.empty()) twice = std::move(name);
    }
    return !deep;  // what is discarded is not kept; the rest is still read for its errors
  };
  auto value = std::make_shared<Value>();
  value->json = Json::parse(text.begin(), text.end(), watch, false);
  if (deep) return refuse("is nested too deeply");
  if (value->json.is_discarded()) return refuse("is not valid JSON");
  if (!twice.empty()) return refuse(fmt::format("has the key '{}' twice", printable(twice)));
  if (!value->json.is_object()) return refuse("is not a JSON object");
  return JsonObject(std::move(value), std::move(file), {});
}

tl::unexpected<Error> JsonObject::wrong(std::string_view key, std::string_view expected) const {
  return fail(ErrorCode::corrupt_file,
              fmt::format("{}: \"{}{}\" is {}, expected {}", file_, path_, key, shown(key), expected),
              "the file is damaged or of another kind of model: get it again");
}

bool JsonObject::has(std::string_view key) const { return member(value_->json, key) != nullptr; }

bool JsonObject::contains(std::string_view key) const { return value_->json.find(key) != value_->json.end(); }

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : value_->json.items()) names.push_back(name);
  return names;
}

bool JsonObject::is_array(std::string_view key) const {
  const Json* value = member(value_->json, key);
  return value != nullptr && value->is_array();
}

bool JsonObject::is_object(std::string_view key) const {
  const Json* value = member(value_->json, key);
  return value != nullptr && value->is_object();
}

std::string JsonObject::json(std::string_view key) const {
  const Json* value = member(value_->json, key);
  return value == nullptr ? "null" : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string JsonObject::shown(std::string_view key) const { return printable(json(key)); }

Result<std::optional<std::int64_t>> JsonObject::integer(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  const auto number = whole(*value);
  if (!number) return wrong(key, "a whole number");
  return number;
}

Result<std::optional<std::vector<double>>> JsonObject::numbers(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return wrong(key, "an array of numbers");
  std::vector<double> all;
  for (const Json& item : *value) {
    if (!item.is_number()) return wrong(key, "an array of numbers");
    all.push_back(item.get<double>());
  }
  return all;
}
Result<std::optional<double>> JsonObject::number(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong(key, "a number");
  return value->get<double>();
}

Result<std::optional<bool>> JsonObject::boolean(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return wrong(key, "true or false");
  return value->get<bool>();
}

Result<std::optional<std::string>> JsonObject::text(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong(key, "a string");
  return value->get<std::string>();
}

Result<std::optional<JsonObject>> JsonObject::object(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return wrong(key, "an object");
  auto inner = std::make_shared<Value>(Value{*value});
  return JsonObject(std::move(inner), file_, fmt::format("{}{}.", path_, key));
}

Result<std::optional<std::vector<std::string>>> JsonObject::texts(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> all;
  for (const Json& item : value->is_array() ? *value : Json::array({nullptr})) {
    if (!item.is_string()) return wrong(key, "an array of strings");
    all.push_back(item.get<std::string>());
  }
  return all;
}

Result<std::optional<std::vector<std::int64_t>>> JsonObject::integers(std::string_view key) const {
  const Json* value = member(value_->json, key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::int64_t> all;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    const auto number = whole(item);
    if (!number) return wrong(key, "whole numbers");
    all.push_back(*number);
  }
  return all;
}

}  // namespace adze::format
