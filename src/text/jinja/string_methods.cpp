// str's methods.
#include <algorithm>
#include <array>

#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

const StringObject& str(const Value& self) { return self.as<StringObject>(); }
Value integer(std::size_t n) { return Value::integer(static_cast<std::int64_t>(n)); }

// --- splitting and joining
// -----------------------------------------------------------------------------------------------

// Pieces between white space, at most `limit` splits (below 0: all), from the left or the right.
std::vector<Value> split_space(Runtime& rt, const StringObject& s, std::int64_t limit, bool from_right) {
  std::vector<Value> out;
  const std::string_view text = s.text;
  const auto space_before = [&](std::size_t at) {
    std::size_t begin = previous_code_point(text, at);
    return is_space(decode_at(text, begin));
  };
  const auto space_at = [&](std::size_t at) { return is_space(decode_at(text, at)); };
  rt.heap.step(s.length);
  if (!from_right) {
    std::size_t at = 0;
    for (;;) {
      while (at < text.size() && space_at(at)) decode_at(text, at);
      if (at >= text.size()) break;
      std::size_t end = at;
      if (limit >= 0 && static_cast<std::int64_t>(out.size()) >= limit)
        end = text.size();
      else
        while (end < text.size() && !space_at(end)) decode_at(text, end);
      out.push_back(substring(rt, s, at, end));
      at = end;
    }
    return out;
  }
  std::size_t at = text.size();
  for (;;) {
    while (at > 0 && space_before(at)) at = previous_code_point(text, at);
    if (at == 0) break;
    std::size_t begin = at;
    if (limit >= 0 && static_cast<std::int64_t>(out.size()) >= limit)
      begin = 0;
    else
      while (begin > 0 && !space_before(begin)) begin = previous_code_point(text, begin);
    out.push_back(substring(rt, s, begin, at));
    at = begin;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Value> split_at(Runtime& rt, const StringObject& s, const std::string& separator, std::int64_t limit,
                            bool from_right) {
  if (separator.empty()) raise_value_error("empty separator");
  std::vector<Value> out;
  rt.heap.step_bytes(s.text.size());
  if (!from_right) {
    std::size_t at = 0;
    for (; limit != 0; --limit) {
      const std::size_t found = s.text.find(separator, at);
      if (found == std::string::npos) break;
      out.push_back(substring(rt, s, at, found));
      at = found + separator.size();
    }
    out.push_back(substring(rt, s, at, s.text.size()));
    return out;
  }
  std::size_t end = s.text.size();
  for (; limit != 0 && end >= separator.size(); --limit) {
    const std::size_t found = s.text.rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    out.push_back(substring(rt, s, found + separator.size(), end));
    end = found;
  }
  out.push_back(substring(rt, s, 0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

Value split_either(Runtime& rt, const Value& self, const Arguments& arguments, bool from_right) {
  const Bound bound(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
  const StringObject* separator = bound.string(0);
  const std::int64_t limit = bound.integer(1, -1);
  return new_list(rt, separator == nullptr ? split_space(rt, str(self), limit, from_right)
                                           : split_at(rt, str(self), separator->text, limit, from_right));
}

Value method_split(Runtime& rt, const Value& self, const Arguments& a) { return split_either(rt, self, a, false); }
Value method_rsplit(Runtime& rt, const Value& self, const Arguments& a) { return split_either(rt, self, a, true); }

Value method_splitlines(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return new_list(rt, split_lines(rt, str(self), bound.flag(rt, 0, false)));
}

Value partition_either(Runtime& rt, const Value& self, const Arguments& arguments, bool from_right) {
  const Bound bound(from_right ? "rpartition" : "partition", arguments, {"sep"}, 1);
  const auto& s = str(self);
  const auto& separator = expect_string(*bound[0], "separator");
  if (separator.text.empty()) raise_value_error("empty separator");
  rt.heap.step_bytes(s.text.size());
  const std::size_t found = from_right ? s.text.rfind(separator.text) : s.text.find(separator.text);
  const Value empty = make_string(rt, "", Origin::literal);
  if (found == std::string::npos) {
    if (from_right) return new_tuple(rt, {empty, empty, self});
    return new_tuple(rt, {self, empty, empty});
  }
  const std::size_t behind = found + separator.text.size();
  return new_tuple(
      rt, {substring(rt, s, 0, found), substring(rt, s, found, behind), substring(rt, s, behind, s.text.size())});
}

Value method_partition(Runtime& rt, const Value& self, const Arguments& a) {
  return partition_either(rt, self, a, false);
}
Value method_rpartition(Runtime& rt, const Value& self, const Arguments& a) {
  return partition_either(rt, self, a, true);
}

Value method_join(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  if (!is_iterable(*bound[0])) raise_type_error("can only join an iterable");
  const Value sequence = as_sequence(rt, *bound[0]);
  const std::vector<Value>& items = items_of(sequence);
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!items[i].is_string())
      raise_type_error(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
  return join(rt, str(self), items);
}

// --- stripping and searching
// ---------------------------------------------------------------------------------------------

Value method_strip(Runtime& rt, const Value& self, const Arguments& a) {
  return strip(rt, str(self), Bound("strip", a, {"chars"}).string(0), true, true);
}
Value method_lstrip(Runtime& rt, const Value& self, const Arguments& a) {
  return strip(rt, str(self), Bound("lstrip", a, {"chars"}).string(0), true, false);
}
Value method_rstrip(Runtime& rt, const Value& self, const Arguments& a) {
  return strip(rt, str(self), Bound("rstrip", a, {"chars"}).string(0), false, true);
}

Value method_removeprefix(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("removeprefix", arguments, {"prefix"}, 1);
  const std::string& prefix = expect_string(*bound[0], "prefix").text;
  if (!str(self).text.starts_with(prefix)) return self;
  return substring(rt, str(self), prefix.size(), str(self).text.size());
}

Value method_removesuffix(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("removesuffix", arguments, {"suffix"}, 1);
  const std::string& suffix = expect_string(*bound[0], "suffix").text;
  if (!str(self).text.ends_with(suffix)) return self;
  return substring(rt, str(self), 0, str(self).text.size() - suffix.size());
}

// The part of a string that start and end arguments (code points) select, as bytes.
struct Part {
  std::string_view text;
  std::size_t from;
  bool valid;  // start is not behind the end of the string
};

Part part(Runtime& rt, const StringObject& s, const Value* start, const Value* end) {
  const auto size = static_cast<std::int64_t>(s.length);
  const auto clip = [&](const Value* v, std::int64_t otherwise) {
    if (v == nullptr || v->is_none()) return otherwise;
    std::int64_t i = to_index(*v, "slice index");
    if (i < 0) i = std::max<std::int64_t>(0, i + size);
    return i;
  };
  const std::int64_t from = clip(start, 0);
  const std::int64_t to = std::min(clip(end, size), size);
  if (from > to || from > size) return {{}, 0, false};
  if (!s.ascii) rt.heap.step_bytes(s.text.size());
  const std::size_t first = s.offset(static_cast<std::size_t>(from));
  const std::size_t last = to == size ? s.text.size() : s.offset(static_cast<std::size_t>(to));
  return {std::string_view(s.text).substr(first, last - first), first, true};
}

bool affix(Runtime& rt, const Value& self, const Arguments& arguments, bool at_start) {
  const std::string_view name = at_start ? "startswith" : "endswith";
  const Bound bound(name, arguments, {"affix", "start", "end"}, 1);
  const Part text = part(rt, str(self), bound[1], bound[2]);
  const auto matches = [&](const Value& candidate) {
    const std::string& other = str(candidate).text;
    return text.valid && (at_start ? text.text.starts_with(other) : text.text.ends_with(other));
  };
  rt.heap.step();
  if (bound[0]->is_string()) return matches(*bound[0]);
  if (!bound[0]->is(Kind::tuple))
    raise_type_error(fmt::format("{} first arg must be str or a tuple of str, not {}", name, type_name(*bound[0])));
  for (const Value& candidate : bound[0]->as<SequenceObject>().items) {
    rt.heap.step();
    if (!candidate.is_string())
      raise_type_error(fmt::format("tuple for {} must only contain str, not {}", name, type_name(candidate)));
    if (matches(candidate)) return true;
  }
  return false;
}

Value method_startswith(Runtime& rt, const Value& self, const Arguments& a) {
  return Value::boolean(affix(rt, self, a, true));
}
Value method_endswith(Runtime& rt, const Value& self, const Arguments& a) {
  return Value::boolean(affix(rt, self, a, false));
}

// Code point index of the first or last occurrence, or -1.
std::int64_t find_in(Runtime& rt, const Value& self, const Arguments& arguments, std::string_view name, bool last) {
  const Bound bound(name, arguments, {"sub", "start", "end"}, 1);
  const auto& s = str(self);
  const auto& sub = expect_string(*bound[0], "substring");
  const Part text = part(rt, s, bound[1], bound[2]);
  if (!text.valid) return -1;
  rt.heap.step_bytes(s.text.size());
  const std::size_t found = last ? text.text.rfind(sub.text) : text.text.find(sub.text);
  if (found == std::string_view::npos) return -1;
  const std::size_t bytes = text.from + found;
  return static_cast<std::int64_t>(s.ascii ? bytes : count_code_points(std::string_view(s.text).substr(0, bytes)));
}

Value method_find(Runtime& rt, const Value& self, const Arguments& a) {
  return Value::integer(find_in(rt, self, a, "find", false));
}
Value method_rfind(Runtime& rt, const Value& self, const Arguments& a) {
  return Value::integer(find_in(rt, self, a, "rfind", true));
}
Value method_index(Runtime& rt, const Value& self, const Arguments& a) {
  const std::int64_t at = find_in(rt, self, a, "index", false);
  if (at < 0) raise_value_error("substring not found");
  return Value::integer(at);
}
Value method_rindex(Runtime& rt, const Value& self, const Arguments& a) {
  const std::int64_t at = find_in(rt, self, a, "rindex", true);
  if (at < 0) raise_value_error("substring not found");
  return Value::integer(at);
}

Value method_count(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  const auto& sub = expect_string(*bound[0], "substring");
  const Part text = part(rt, str(self), bound[1], bound[2]);
  if (!text.valid) return Value::integer(0);
  rt.heap.step_bytes(text.text.size());
  if (sub.text.empty()) return integer(count_code_points(text.text) + 1);
  std::size_t count = 0;
  for (std::size_t at = text.text.find(sub.text); at != std::string_view::npos;
       at = text.text.find(sub.text, at + sub.text.size()))
    ++count;
  return integer(count);
}

Value method_replace(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return replace(rt, str(self), expect_string(*bound[0], "replace() argument 1"),
                 expect_string(*bound[1], "replace() argument 2"), bound.integer(2, -1));
}

// --- case and padding
// ----------------------------------------------------------------------------------------------------

Value method_upper(Runtime& rt, const Value& self, const Arguments&) { return upper(rt, str(self)); }
Value method_lower(Runtime& rt, const Value& self, const Arguments&) { return lower(rt, str(self)); }
Value method_title(Runtime& rt, const Value& self, const Arguments&) { return title(rt, str(self)); }
Value method_capitalize(Runtime& rt, const Value& self, const Arguments&) { return capitalize(rt, str(self)); }

void append_codes(std::u32string& out, const Mapping& mapping) {
  out.push_back(mapping.codes[0]);
  for (std::size_t i = 1; mapping.codes[i] != 0; ++i) out.push_back(mapping.codes[i]);
}

Value method_swapcase(Runtime& rt, const Value& self, const Arguments&) { return swap_case(rt, str(self)); }

Value method_casefold(Runtime& rt, const Value& self, const Arguments&) {
  return map_code_points(rt, str(self),
                         [](char32_t c, std::size_t, std::u32string& out) { append_codes(out, to_folded(c)); });
}

enum class Align { left, right, center };

Value pad(Runtime& rt, const Value& self, const Arguments& arguments, std::string_view name, Align align) {
  const Bound bound(name, arguments, {"width", "fillchar"}, 1);
  const std::int64_t width = bound.integer(0, 0);
  const StringObject* fill = bound.string(1);
  if (fill != nullptr && fill->length != 1) raise_type_error("The fill character must be exactly one character long");
  const auto& s = str(self);
  const std::int64_t missing = width - static_cast<std::int64_t>(s.length);
  if (missing <= 0) return self;
  const Value space = make_string(rt, " ", Origin::literal);
  const auto& filler = fill != nullptr ? *fill : str(space);
  // Python's centre puts the odd one left when width is odd.
  const std::int64_t before = align == Align::left    ? 0
                              : align == Align::right ? missing
                                                      : missing / 2 + (missing & width & 1);
  TextBuilder out(rt);
  out.append_times(filler, before);
  out.append(s);
  out.append_times(filler, missing - before);
  return out.finish(s.markup);
}

Value method_ljust(Runtime& rt, const Value& self, const Arguments& a) {
  return pad(rt, self, a, "ljust", Align::left);
}
Value method_rjust(Runtime& rt, const Value& self, const Arguments& a) {
  return pad(rt, self, a, "rjust", Align::right);
}
Value method_center(Runtime& rt, const Value& self, const Arguments& a) {
  return pad(rt, self, a, "center", Align::center);
}

Value method_zfill(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const auto& s = str(self);
  const std::int64_t missing = bound.integer(0, 0) - static_cast<std::int64_t>(s.length);
  if (missing <= 0) return self;
  const bool sign = s.text.starts_with('-') || s.text.starts_with('+');
  const Value zero = make_string(rt, "0", Origin::literal);
  TextBuilder out(rt);
  if (sign) out.append(s, 0, 1);
  out.append_times(str(zero), missing);
  out.append(s, sign ? 1 : 0, s.text.size());
  return out.finish(s.markup);
}

Value method_expandtabs(Runtime& rt, const Value& self, const Arguments& arguments) {
  const std::int64_t size = Bound("expandtabs", arguments, {"tabsize"}).integer(0, 8);
  const auto& s = str(self);
  TextBuilder out(rt);
  OriginCursor cursor(s);
  const Value space = make_string(rt, " ", Origin::literal);
  std::int64_t column = 0;
  for (std::size_t at = 0; at < s.text.size();) {
    const std::size_t begin = at;
    const char32_t code = decode_at(s.text, at);
    if (code == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      out.append_times(str(space), spaces);
      column += spaces;
    } else {
      out.append(s, begin, at);
      column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
  }
  return out.finish(s.markup);
}

// --- classes
// ---------------------------------------------------------------------------------------------------------------

using Class = bool (*)(char32_t);

// Whether there are characters and all are of a class.
template <Class kClass>
Value all_are(Runtime& rt, const Value& self, const Arguments&) {
  const auto& s = str(self);
  rt.heap.step(1 + s.length / 16);
  for (std::size_t at = 0; at < s.text.size();)
    if (!kClass(decode_at(s.text, at))) return Value::boolean(false);
  return Value::boolean(!s.text.empty());
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

Value method_isascii(Runtime&, const Value& self, const Arguments&) { return Value::boolean(str(self).ascii); }

Value method_isprintable(Runtime& rt, const Value& self, const Arguments& a) {
  return Value::boolean(str(self).text.empty() || all_are<is_printable>(rt, self, a).as_boolean());
}

// islower, isupper: some cased character, and none of the other case.
Value one_case(Runtime& rt, const Value& self, Class wanted, Class other) {
  const auto& s = str(self);
  rt.heap.step(1 + s.length / 16);
  bool seen = false;
  for (std::size_t at = 0; at < s.text.size();) {
    const char32_t code = decode_at(s.text, at);
    if (other(code) || is_title(code)) return Value::boolean(false);
    seen = seen || wanted(code);
  }
  return Value::boolean(seen);
}

Value method_islower(Runtime& rt, const Value& self, const Arguments&) {
  return one_case(rt, self, is_lower, is_upper);
}
Value method_isupper(Runtime& rt, const Value& self, const Arguments&) {
  return one_case(rt, self, is_upper, is_lower);
}

Value method_istitle(Runtime& rt, const Value& self, const Arguments&) {
  const auto& s = str(self);
  rt.heap.step(1 + s.length / 16);
  bool inside_word = false;
  bool seen = false;
  for (std::size_t at = 0; at < s.text.size();) {
    const char32_t code = decode_at(s.text, at);
    if (is_upper(code) || is_title(code)) {
      if (inside_word) return Value::boolean(false);
      inside_word = seen = true;
    } else if (is_lower(code)) {
      if (!inside_word) return Value::boolean(false);
    } else {
      inside_word = false;
    }
  }
  return Value::boolean(seen);
}

Value method_isidentifier(Runtime& rt, const Value& self, const Arguments&) {
  const std::string& text = str(self).text;
  rt.heap.step_bytes(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t code = decode_at(text, at);
    if (!(first ? is_name_start(code) : is_name_rest(code))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

Value method_format(Runtime& rt, const Value& self, const Arguments& arguments) {
  return brace_format(rt, str(self), arguments);
}

Value method_format_map(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("format_map", arguments, {"mapping"}, 1);
  if (!bound[0]->is(Kind::dict)) raise_type_error("format_map() argument must be a mapping");
  Arguments named;
  for (const auto& [key, value] : bound[0]->as<DictObject>().entries)
    if (key.is_string()) named.named.emplace_back(str(key).text, value);
  return brace_format(rt, str(self), named);
}

struct Entry {
  std::string_view name;
  Method method;
};

constexpr std::array kMethods = {
    Entry{"capitalize", method_capitalize},
    Entry{"casefold", method_casefold},
    Entry{"center", method_center},
    Entry{"count", method_count},
    Entry{"endswith", method_endswith},
    Entry{"expandtabs", method_expandtabs},
    Entry{"find", method_find},
    Entry{"format", method_format},
    Entry{"format_map", method_format_map},
    Entry{"index", method_index},
    Entry{"isalnum", all_are<is_alphanumeric>},
    Entry{"isalpha", all_are<is_alpha>},
    Entry{"isascii", method_isascii},
    Entry{"isdecimal", all_are<is_decimal>},
    Entry{"isdigit", all_are<is_digit>},
    Entry{"isidentifier", method_isidentifier},
    Entry{"islower", method_islower},
    Entry{"isnumeric", all_are<is_numeric>},
    Entry{"isprintable", method_isprintable},
    Entry{"isspace", all_are<is_space>},
    Entry{"istitle", method_istitle},
    Entry{"isupper", method_isupper},
    Entry{"join", method_join},
    Entry{"ljust", method_ljust},
    Entry{"lower", method_lower},
    Entry{"lstrip", method_lstrip},
    Entry{"partition", method_partition},
    Entry{"removeprefix", method_removeprefix},
    Entry{"removesuffix", method_removesuffix},
    Entry{"replace", method_replace},
    Entry{"rfind", method_rfind},
    Entry{"rindex", method_rindex},
    Entry{"rjust", method_rjust},
    Entry{"rpartition", method_rpartition},
    Entry{"rsplit", method_rsplit},
    Entry{"rstrip", method_rstrip},
    Entry{"split", method_split},
    Entry{"splitlines", method_splitlines},
    Entry{"startswith", method_startswith},
    Entry{"strip", method_strip},
    Entry{"swapcase", method_swapcase},
    Entry{"title", method_title},
    Entry{"upper", method_upper},
    Entry{"zfill", method_zfill},
};

}  // namespace

Method find_string_method(std::string_view name) {
  const auto found = std::find_if(kMethods.begin(), kMethods.end(), [&](const Entry& e) { return e.name == name; });
  return found == kMethods.end() ? nullptr : found->method;
}

}  // namespace adze::text::jinja
