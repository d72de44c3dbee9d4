#include "cli/json_writer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

#include "text/unicode.hpp"

namespace adze::cli {

void JsonWriter::separate() {
  if (!after_key_ && !first_) text_ += ',';
  after_key_ = false;
  first_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  value(name);
  text_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  text_ += json;
  return *this;
}

JsonWriter& JsonWriter::value(bool flag) { return raw(flag ? "true" : "false"); }

JsonWriter& JsonWriter::value(double number) {
  return std::isfinite(number) ? raw(fmt::format("{}", number)) : raw("null");
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  text_ += '"';
  while (!text.empty()) {
    const text::Utf8Part part = text::first_utf8_part(text);
    const char c = text.front();
    if (part.kind != text::Utf8Kind::character) {
      text_ += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      text_ += text.substr(0, part.bytes);
    }
    text.remove_prefix(part.bytes);
  }
  text_ += '"';
  return *this;
}

std::string JsonWriter::take() {
  text_ += '\n';
  return std::exchange(text_, {});
}

}  // namespace adze::cli
