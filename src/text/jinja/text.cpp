#include "text/jinja/text.hpp"

#include <algorithm>

#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {

TextBuilder::TextBuilder(Runtime& rt) : rt_(rt) {}

TextBuilder::~TextBuilder() { rt_.heap.refund(charged_); }

void TextBuilder::reserve(std::size_t more) {
  const std::size_t need = text_.size() + more;
  if (need <= text_.capacity()) return;
  const std::size_t grown = std::max(need, text_.capacity() + text_.capacity() / 2);
  rt_.heap.charge(grown);  // both copies live while it grows
  text_.reserve(grown);
  rt_.heap.refund(charged_);
  charged_ = grown;
}

void TextBuilder::append(std::string_view text, Origin origin) {
  if (text.empty()) return;
  rt_.heap.step_bytes(text.size());
  reserve(text.size());
  text_.append(text);
  if (!runs_.empty() && runs_.back().origin == origin)
    runs_.back().end = text_.size();
  else
    runs_.push_back({text_.size(), origin});
}

void TextBuilder::append(const StringObject& string, std::size_t from, std::size_t to) {
  const std::string_view text = string.text;
  if (string.runs.empty()) {
    append(text.substr(from, to - from), string.origin);
    return;
  }
  auto run = std::upper_bound(string.runs.begin(), string.runs.end(), from,
                              [](std::size_t at, const Run& r) { return at < r.end; });
  for (; run != string.runs.end() && from < to; ++run) {
    const std::size_t end = std::min(run->end, to);
    append(text.substr(from, end - from), run->origin);
    from = end;
  }
}

void TextBuilder::append_code_point(char32_t code, Origin origin) {
  if (code < 0x80) {
    const char c = static_cast<char>(code);
    append({&c, 1}, origin);
  } else {
    append(to_utf8(code), origin);
  }
}

void TextBuilder::append_times(const StringObject& string, std::int64_t times) {
  for (; times > 0 && !string.text.empty(); --times) append(string);
}

Value TextBuilder::finish(bool markup) {
  auto* string = rt_.heap.make<StringObject>();
  const Value value(string);
  string->markup = markup;
  if (runs_.size() == 1) string->origin = runs_[0].origin;
  if (runs_.size() > 1) {
    string->runs = std::move(runs_);
    rt_.heap.charge(*string, string->runs.capacity() * sizeof(Run));
  }
  runs_.clear();
  string->text = std::move(text_);
  text_.clear();
  rt_.heap.refund(charged_);
  charged_ = 0;
  if (string->text.capacity() > string->text.size() * 2 && string->text.size() > 64) string->text.shrink_to_fit();
  rt_.heap.charge(*string, string->text.capacity());
  string->ascii = is_ascii(string->text);
  string->length = string->ascii ? string->text.size() : count_code_points(string->text);
  return value;
}

Value make_string(Runtime& rt, std::string_view text, Origin origin, bool markup) {
  rt.heap.step_bytes(text.size());
  auto* string = rt.heap.make<StringObject>();
  const Value value(string);
  rt.heap.charge(*string, text.size());
  string->text = text;
  string->origin = origin;
  string->markup = markup;
  string->ascii = is_ascii(text);
  string->length = string->ascii ? text.size() : count_code_points(text);
  return value;
}

Value substring(Runtime& rt, const StringObject& string, std::size_t from, std::size_t to) {
  TextBuilder out(rt);
  out.append(string, from, std::max(from, to));
  return out.finish(string.markup);
}

std::size_t StringObject::offset(std::size_t index) const {
  return ascii ? std::min(index, text.size()) : byte_offset(text, index);
}

Origin OriginCursor::at(std::size_t byte) {
  if (string_.runs.empty()) return string_.origin;
  if (run_ > 0 && byte < string_.runs[run_ - 1].end) run_ = 0;
  while (run_ + 1 < string_.runs.size() && byte >= string_.runs[run_].end) ++run_;
  return string_.runs[run_].origin;
}

Origin overall_origin(const StringObject& string) { return string.runs.empty() ? string.origin : Origin::data; }

Value map_code_points(Runtime& rt, const StringObject& string, const CodePointMap& map) {
  TextBuilder out(rt);
  OriginCursor cursor(string);
  std::u32string image;
  std::string bytes;
  Origin origin = Origin::literal;
  rt.heap.step(string.length);
  for (std::size_t at = 0; at < string.text.size();) {
    const std::size_t begin = at;
    const char32_t code = decode_at(string.text, at);
    if (cursor.at(begin) != origin) {
      out.append(bytes, origin);
      bytes.clear();
      origin = cursor.at(begin);
    }
    image.clear();
    map(code, begin, image);
    for (const char32_t c : image) append_utf8(bytes, c);
    if (bytes.size() > 4096) {
      out.append(bytes, origin);
      bytes.clear();
    }
  }
  out.append(bytes, origin);
  return out.finish(string.markup);
}

namespace {

void append_mapping(std::u32string& out, const Mapping& mapping) {
  for (std::size_t i = 0; mapping.codes[i] != 0 || (i == 0 && mapping.codes[1] == 0); ++i) {
    out.push_back(mapping.codes[i]);
    if (mapping.codes[i] == 0) break;  // NUL maps to itself
  }
}

constexpr char32_t kSigma = 0x3a3;

// Greek capital sigma becomes the final form at the end of a word, as Python does.
char32_t lower_sigma(std::string_view text, std::size_t at) {
  std::size_t back = at;
  bool letter_before = false;
  while (back > 0) {
    std::size_t here = back = previous_code_point(text, back);
    const char32_t code = decode_at(text, here);
    if (is_case_ignorable(code)) continue;
    letter_before = is_cased(code);
    break;
  }
  if (!letter_before) return 0x3c3;
  std::size_t next = at;
  decode_at(text, next);
  while (next < text.size()) {
    const char32_t code = decode_at(text, next);
    if (is_case_ignorable(code)) continue;
    return is_cased(code) ? 0x3c3 : 0x3c2;
  }
  return 0x3c2;
}

void append_lower(const StringObject& string, char32_t code, std::size_t at, std::u32string& out) {
  if (code == kSigma)
    out.push_back(lower_sigma(string.text, at));
  else
    append_mapping(out, to_lower(code));
}

}  // namespace

Value upper(Runtime& rt, const StringObject& string) {
  return map_code_points(rt, string,
                         [](char32_t c, std::size_t, std::u32string& out) { append_mapping(out, to_upper(c)); });
}

Value lower(Runtime& rt, const StringObject& string) {
  return map_code_points(rt, string,
                         [&](char32_t c, std::size_t at, std::u32string& out) { append_lower(string, c, at, out); });
}

Value capitalize(Runtime& rt, const StringObject& string) {
  return map_code_points(rt, string, [&](char32_t c, std::size_t at, std::u32string& out) {
    if (at == 0)
      append_mapping(out, to_title(c));
    else
      append_lower(string, c, at, out);
  });
}

Value title(Runtime& rt, const StringObject& string) {
  bool inside_word = false;
  return map_code_points(rt, string, [&](char32_t c, std::size_t at, std::u32string& out) {
    if (inside_word)
      append_lower(string, c, at, out);
    else
      append_mapping(out, to_title(c));
    inside_word = is_cased(c);
  });
}

Value swap_case(Runtime& rt, const StringObject& string) {
  return map_code_points(rt, string, [&](char32_t c, std::size_t at, std::u32string& out) {
    if (is_upper(c))
      append_lower(string, c, at, out);
    else if (is_lower(c))
      append_mapping(out, to_upper(c));
    else
      out.push_back(c);
  });
}

Value escape(Runtime& rt, const StringObject& string) {
  if (string.markup) return const_cast<StringObject*>(&string);
  TextBuilder out(rt);
  OriginCursor cursor(string);
  std::size_t from = 0;
  for (std::size_t at = 0; at < string.text.size(); ++at) {
    std::string_view entity;
    switch (string.text[at]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '\'': entity = "&#39;"; break;
      case '"': entity = "&#34;"; break;
      default: continue;
    }
    out.append(string, from, at);
    out.append(entity, cursor.at(at));
    from = at + 1;
  }
  out.append(string, from, string.text.size());
  return out.finish(true);
}

Value replace(Runtime& rt, const StringObject& string, const StringObject& from, const StringObject& to,
              std::int64_t count) {
  TextBuilder out(rt);
  const std::string_view text = string.text;
  std::size_t at = 0;
  rt.heap.step_bytes(text.size());
  if (from.text.empty()) {  // between all code points
    while (count != 0 && at <= text.size()) {
      out.append(to);
      if (--count == 0 || at == text.size()) break;
      std::size_t next = at;
      decode_at(text, next);
      out.append(string, at, next);
      at = next;
    }
  } else {
    for (; count != 0; --count) {
      const std::size_t found = text.find(from.text, at);
      if (found == std::string_view::npos) break;
      out.append(string, at, found);
      out.append(to);
      at = found + from.text.size();
    }
  }
  if (at < text.size()) out.append(string, at, text.size());
  return out.finish(string.markup);
}

Value strip(Runtime& rt, const StringObject& string, const StringObject* chars, bool left, bool right) {
  const std::string_view text = string.text;
  std::u32string set;
  if (chars != nullptr)
    for (std::size_t at = 0; at < chars->text.size();) set.push_back(decode_at(chars->text, at));
  const auto stripped = [&](char32_t c) {
    rt.heap.step(1 + set.size() / 64);
    return chars == nullptr ? is_space(c) : set.find(c) != std::u32string::npos;
  };
  std::size_t from = 0;
  std::size_t to = text.size();
  while (left && from < to) {
    std::size_t next = from;
    if (!stripped(decode_at(text, next))) break;
    from = next;
  }
  while (right && to > from) {
    const std::size_t before = previous_code_point(text, to);
    std::size_t at = before;
    if (!stripped(decode_at(text, at))) break;
    to = before;
  }
  return substring(rt, string, from, to);
}

std::vector<Value> split_lines(Runtime& rt, const StringObject& string, bool keep_ends) {
  std::vector<Value> lines;
  const std::string_view text = string.text;
  rt.heap.step_bytes(text.size());
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    std::size_t next = begin;
    while (next < text.size()) {
      end = next;
      const char32_t code = decode_at(text, next);
      if (is_line_break(code)) {
        if (code == '\r' && next < text.size() && text[next] == '\n') ++next;
        break;
      }
      end = next;
    }
    lines.push_back(substring(rt, string, begin, keep_ends ? next : end));
    begin = next;
  }
  return lines;
}

Value join(Runtime& rt, const StringObject& separator, std::span<const Value> strings) {
  TextBuilder out(rt);
  bool first = true;
  for (const Value& s : strings) {
    if (!first) out.append(separator);
    first = false;
    out.append(s.as<StringObject>());
  }
  return out.finish(separator.markup);
}

}  // namespace adze::text::jinja
