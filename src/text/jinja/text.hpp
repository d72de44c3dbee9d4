// Building and cutting strings without losing track of where their bytes come from.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.hpp"

namespace adze::text::jinja {

// Collects text; neighbouring bytes of one origin share a run. Its memory counts against the render.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& rt);
  ~TextBuilder();
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void append(std::string_view text, Origin origin);
  void append(const StringObject& string) { append(string, 0, string.text.size()); }
  void append(const StringObject& string, std::size_t from, std::size_t to);  // bytes
  void append_code_point(char32_t code, Origin origin);
  void append_times(const StringObject& string, std::int64_t times);
  std::size_t size() const { return text_.size(); }

  // The string built so far; the builder is empty afterwards.
  Value finish(bool markup = false);
  // The raw parts, for the final output.
  std::string take_text() { return std::move(text_); }
  std::vector<Run> take_runs() { return std::move(runs_); }

 private:
  void reserve(std::size_t more);
  Runtime& rt_;
  std::string text_;
  std::vector<Run> runs_;
  std::uint64_t charged_ = 0;
};

// A string all of one origin.
Value make_string(Runtime& rt, std::string_view text, Origin origin = Origin::data, bool markup = false);

// The bytes [from, to) of a string, with their origins.
Value substring(Runtime& rt, const StringObject& string, std::size_t from, std::size_t to);

// The origin of the byte at `at`; walks along when asked in ascending order.
class OriginCursor {
 public:
  explicit OriginCursor(const StringObject& string) : string_(string) {}
  Origin at(std::size_t byte);

 private:
  const StringObject& string_;
  std::size_t run_ = 0;
};

// The one origin of a string: literal only when all of it is.
Origin overall_origin(const StringObject& string);

// The string with every code point replaced by what `map` writes for it, origins kept.
// map(code, byte offset, out): appends the image's code points.
using CodePointMap = std::function<void(char32_t, std::size_t, std::u32string&)>;
Value map_code_points(Runtime& rt, const StringObject& string, const CodePointMap& map);

Value upper(Runtime& rt, const StringObject& string);
Value lower(Runtime& rt, const StringObject& string);
Value capitalize(Runtime& rt, const StringObject& string);

// & < > ' " as HTML entities; the result is markup.
Value escape(Runtime& rt, const StringObject& string);
Value swap_case(Runtime& rt, const StringObject& string);
Value title(Runtime& rt, const StringObject& string);

// str.replace; count below 0: all.
Value replace(Runtime& rt, const StringObject& string, const StringObject& from, const StringObject& to,
              std::int64_t count);
// str.strip with sides; chars null: white space.
Value strip(Runtime& rt, const StringObject& string, const StringObject* chars, bool left, bool right);
// str.splitlines.
std::vector<Value> split_lines(Runtime& rt, const StringObject& string, bool keep_ends);
Value join(Runtime& rt, const StringObject& separator, std::span<const Value> strings);

}  // namespace adze::text::jinja
