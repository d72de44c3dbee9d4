// Writes one JSON value as text, in the order it is told. For --json output, which is flat and small; reading JSON is
// the business of a library, behind the rooms that need it.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace adze::cli {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);  // bytes that are not UTF-8 become U+FFFD
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& value(double number);  // not finite: null
  template <std::integral Integer>
  JsonWriter& value(Integer number) {
    return raw(std::to_string(number));
  }
  JsonWriter& null() { return raw("null"); }
  // Text that is JSON already.
  JsonWriter& raw(std::string_view json);

  template <class T>
  JsonWriter& field(std::string_view name, const T& item) {
    return key(name).value(item);
  }
  template <class Range>
  JsonWriter& list(std::string_view name, const Range& items) {
    key(name).begin_array();
    for (const auto& item : items) value(item);
    return end_array();
  }

  // The text so far with a final newline.
  std::string take();

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string text_;
  bool first_ = true;  // nothing in this object or array yet
  bool after_key_ = false;
};

}  // namespace adze::cli
