// Filters on single values: text, numbers, defaults.
#include "text/jinja/filters.hpp"

#include <cmath>

#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

const StringObject& str(const Value& v) { return v.as<StringObject>(); }

Value filter_upper(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = to_string(rt, v);
  return upper(rt, str(text));
}
Value filter_lower(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = to_string(rt, v);
  return lower(rt, str(text));
}
Value filter_capitalize(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = to_string(rt, v);
  return capitalize(rt, str(text));
}

// Words begin after white space, hyphens and opening brackets, not after every non-letter as in str.title.
Value filter_title(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = to_string(rt, v);
  bool word_start = true;
  return map_code_points(rt, str(text), [&](char32_t c, std::size_t, std::u32string& out) {
    const bool separator = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    const Mapping mapping = word_start && !separator ? to_upper(c) : to_lower(c);
    for (std::size_t i = 0; i == 0 || mapping.codes[i] != 0; ++i) out.push_back(mapping.codes[i]);
    word_start = separator;
  });
}

Value filter_trim(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Value text = to_string(rt, v);
  return strip(rt, str(text), bound.string(0), true, true);
}

Value filter_replace(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const Value text = to_string(rt, v);
  const Value from = to_string(rt, *bound[0]);
  const Value to = to_string(rt, *bound[1]);
  const bool all = bound[2] == nullptr || bound[2]->is_none();
  const Value out = replace(rt, str(text), str(from), str(to), all ? -1 : bound.integer(2, -1));
  out.as<StringObject>().markup = false;
  return out;
}

Value filter_string(Runtime& rt, const Value& v, const Arguments&) { return to_string(rt, v); }

Value filter_escape(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = to_string(rt, v);
  return escape(rt, str(text));
}

Value plain_copy(Runtime& rt, const Value& text, bool markup) {
  const Value copy = substring(rt, str(text), 0, str(text).text.size());
  copy.as<StringObject>().markup = markup;
  return copy;
}

Value filter_forceescape(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = plain_copy(rt, to_string(rt, v), false);
  return escape(rt, str(text));
}

Value filter_safe(Runtime& rt, const Value& v, const Arguments&) { return plain_copy(rt, to_string(rt, v), true); }

Value filter_default(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!v.is_undefined() && !(bound.flag(rt, 1, false) && !truthy(rt, v))) return v;
  return bound[0] != nullptr ? *bound[0] : make_string(rt, "", Origin::literal);
}

Value filter_abs(Runtime& rt, const Value& v, const Arguments&) {
  if (v.is_undefined()) raise_undefined(rt, v);
  if (v.is(Kind::real)) return Value::real(std::fabs(v.as_real()));
  if (v.is_any_int()) return to_big(v).is_negative() ? negate(rt, v) : plus(rt, v);
  raise_type_error(fmt::format("bad operand type for abs(): '{}'", type_name(v)));
}

Value filter_int(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const auto otherwise = [&] { return bound[0] != nullptr ? *bound[0] : Value::integer(0); };
  const auto truncated = [&](double d) { return make_integer(rt, BigInt::truncate(d)); };
  if (v.is_undefined()) raise_undefined(rt, v);
  if (v.is_any_int()) return plus(rt, v);
  if (v.is(Kind::real)) {
    if (std::isinf(v.as_real())) raise("OverflowError", "cannot convert float infinity to integer");
    return std::isnan(v.as_real()) ? otherwise() : truncated(v.as_real());
  }
  if (!v.is_string()) return otherwise();
  Value out;
  if (parse_integer(rt, str(v).text, static_cast<int>(bound.integer(1, 10)), out)) return out;
  double d = 0;
  return parse_float(str(v).text, d) && std::isfinite(d) ? truncated(d) : otherwise();
}

Value filter_float(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (v.is_undefined()) raise_undefined(rt, v);
  if (v.is_number()) return Value::real(to_double(rt, v));
  double d = 0;
  if (v.is_string() && parse_float(str(v).text, d)) return Value::real(d);
  return bound[0] != nullptr ? *bound[0] : Value::real(0.0);
}

Value filter_round(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::string method = bound[1] != nullptr ? expect_string(*bound[1], "method").text : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    raise_filter_argument("method must be common, ceil or floor");
  if (v.is_undefined()) raise_undefined(rt, v);
  const std::int64_t precision = bound.integer(0, 0);
  if (method == "common") return round_half_even(rt, v, precision, true);
  const Value scale = binary(rt, BinaryOp::power, Value::integer(10), Value::integer(precision));
  const Value scaled = binary(rt, BinaryOp::multiply, v, scale);
  if (!scaled.is_number()) raise_type_error(fmt::format("must be real number, not {}", type_name(scaled)));
  if (scaled.is_any_int()) return binary(rt, BinaryOp::divide, scaled, scale);
  if (!std::isfinite(scaled.as_real())) raise("OverflowError", "cannot convert float infinity to integer");
  const double whole = method == "ceil" ? std::ceil(scaled.as_real()) : std::floor(scaled.as_real());
  return binary(rt, BinaryOp::divide, make_integer(rt, BigInt::truncate(whole)), scale);
}

Value filter_format(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Value text = to_string(rt, v);
  if (!arguments.positional.empty() && !arguments.named.empty())
    raise_filter_argument("can't handle positional and keyword arguments at the same time");
  if (arguments.named.empty()) return percent_format(rt, str(text), new_tuple(rt, arguments.positional));
  const Value mapping(rt.heap.make<DictObject>());
  for (const auto& [name, value] : arguments.named)
    mapping.as<DictObject>().set(rt, make_string(rt, name, Origin::literal), value);
  return percent_format(rt, str(text), mapping);
}

Value filter_wordcount(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = to_string(rt, v);
  std::int64_t words = 0;
  bool inside = false;
  rt.heap.step(str(text).length);
  for (std::size_t at = 0; at < str(text).text.size();) {
    const char32_t c = decode_at(str(text).text, at);
    const bool word = c == '_' || is_alpha(c) || is_numeric(c);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

Value filter_filesizeformat(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("filesizeformat", arguments, {"binary"});
  const bool binary_units = bound.flag(rt, 0, false);
  double bytes = 0;
  if (v.is_undefined()) raise_undefined(rt, v);
  if (v.is_number())
    bytes = to_double(rt, v);
  else if (!v.is_string())
    raise_type_error(fmt::format("float() argument must be a string or a real number, not '{}'", type_name(v)));
  else if (!parse_float(str(v).text, bytes))
    raise_value_error(fmt::format("could not convert string to float: {}", repr(rt, v)));
  const double base = binary_units ? 1024 : 1000;
  const auto say = [&](const std::string& text) { return make_string(rt, text); };
  if (bytes == 1) return say("1 Byte");
  if (bytes < base && !std::isfinite(bytes)) raise("OverflowError", "cannot convert float infinity to integer");
  if (bytes < base) return say(fmt::format("{} Bytes", BigInt::truncate(bytes).to_string()));
  double unit = base;
  for (const char prefix : std::string_view("kMGTPEZY")) {
    unit *= base;
    if (bytes < unit || prefix == 'Y') {
      const char shown = binary_units && prefix == 'k' ? 'K' : prefix;
      return say(fmt::format("{:.1f} {}{}B", base * bytes / unit, shown, binary_units ? "i" : ""));
    }
  }
  return say("");
}

Value filter_attr(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  return get_own_attribute(rt, v, expect_string(*bound[0], "attribute name").text);
}

Value filter_tojson(Runtime& rt, const Value& v, const Arguments& arguments) { return to_json(rt, v, arguments); }

Value filter_pprint(Runtime& rt, const Value& v, const Arguments&) {
  TextBuilder out(rt);
  append_repr(rt, out, v);
  return out.finish();
}

constexpr FilterEntry kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_capitalize},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", filter_filesizeformat},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"int", filter_int},
    {"lower", filter_lower},
    {"pprint", filter_pprint},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"upper", filter_upper},
    {"wordcount", filter_wordcount},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

Filter find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), sequence_filters(), select_filters(), layout_filters()})
    for (const FilterEntry& entry : table)
      if (entry.name == name) return entry.filter;
  return nullptr;
}

Value Runtime::call_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) raise("TemplateRuntimeError", fmt::format("No filter named '{}' found.", name));
  heap.step();
  return filter(*this, value, arguments);
}

}  // namespace adze::text::jinja
