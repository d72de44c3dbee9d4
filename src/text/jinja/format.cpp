// The two old ways to fill a text with values: "%s" % x and "{}".format(x).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/limits.hpp"
#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

struct Spec {
  char32_t fill = ' ';
  char align = 0;   // < > ^ =; 0: by type
  char sign = '-';  // - + or space
  bool alternate = false;
  char grouping = 0;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

void pad(TextBuilder& out, const StringObject& text, std::size_t sign_and_prefix, const Spec& spec, char align) {
  const std::int64_t missing = spec.width - static_cast<std::int64_t>(text.length);
  if (missing <= 0) {
    out.append(text);
    return;
  }
  const auto fill = [&](std::int64_t n) {
    for (; n > 0; --n) out.append_code_point(spec.fill, Origin::literal);
  };
  if (align == '=') {
    out.append(text, 0, sign_and_prefix);
    fill(missing);
    out.append(text, sign_and_prefix, text.text.size());
    return;
  }
  const std::int64_t before = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  fill(before);
  out.append(text);
  fill(missing - before);
}

std::string group_digits(std::string digits, char separator, std::size_t every) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (std::size_t at = end; at > every; at -= every) digits.insert(at - every, 1, separator);
  return digits;
}

std::string trim_general(const std::string& text) {
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return mantissa + text.substr(e);
}

// The digits of |value| in a presentation type.
std::string real_digits(double value, char type, std::int64_t precision, bool alternate) {
  value = std::fabs(value);
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(value)) return std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  if (precision < 0) precision = 6;
  switch (type) {
    case 'e': return fmt::format("{:.{}e}", value, precision);
    case 'E': return fmt::format("{:.{}E}", value, precision);
    case 'f':
    case 'F': return fmt::format("{:.{}f}", value, precision) + (alternate && precision == 0 ? "." : "");
    case '%': return fmt::format("{:.{}f}%", value * 100, precision);
    default: break;
  }
  // general: the exponent decides; trailing zeros go unless asked for
  if (precision == 0) precision = 1;
  const std::string scientific = fmt::format("{:.{}e}", value, precision - 1);
  const int exponent = decimal_exponent(scientific);
  std::string text =
      exponent < -4 || exponent >= precision ? scientific : fmt::format("{:.{}f}", value, precision - 1 - exponent);
  if (!alternate) text = trim_general(text);
  if (upper) std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c == 'e' ? 'E' : c; });
  return text;
}

std::string sign_of(bool negative, char sign) { return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : ""; }

struct Radix {
  int base;
  std::string_view prefix;
};
Radix radix(char type) {
  switch (type) {
    case 'x': return {16, "0x"};
    case 'X': return {16, "0X"};
    case 'o': return {8, "0o"};
    case 'b': return {2, "0b"};
    default: return {10, ""};
  }
}

void check_width(std::int64_t width, std::int64_t precision) {
  if (width > limits::kTemplateMaxFieldWidth || precision > limits::kTemplateMaxFieldWidth)
    raise_value_error("width or precision is too large");
}

// --- format(value, spec)
// -------------------------------------------------------------------------------------------------------

Spec parse_spec(std::string_view text, const Value& value) {
  Spec spec;
  std::size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    std::size_t second = 0;
    const char32_t first = decode_at(text, second);
    if (second < text.size() && is_align(text[second])) {
      spec.fill = first;
      spec.align = text[second];
      at = second + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == 'z') ++at;
  if (peek() == '#') spec.alternate = ++at != 0;
  if (peek() == '0') {
    ++at;
    if (spec.align == 0) {
      spec.fill = '0';
      spec.align = value.is_string() ? '<' : '=';
    }
  }
  const auto number = [&](std::int64_t& out) {
    for (out = 0; peek() >= '0' && peek() <= '9'; ++at)
      out = std::min(out * 10 + (text[at] - '0'), limits::kTemplateMaxFieldWidth + 1);
  };
  if (peek() >= '0' && peek() <= '9') number(spec.width);
  if (peek() == ',' || peek() == '_') spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    if (peek() < '0' || peek() > '9') raise_value_error("Format specifier missing precision");
    number(spec.precision);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) raise_value_error(fmt::format("Invalid format specifier '{}'", text));
  check_width(spec.width, spec.precision);
  return spec;
}

[[noreturn]] void unknown_code(char code, const Value& value) {
  raise_value_error(fmt::format("Unknown format code '{}' for object of type '{}'", code, type_name(value)));
}

void format_string(Runtime& rt, TextBuilder& out, const Value& value, const Spec& spec) {
  if (spec.type != 0 && spec.type != 's') unknown_code(spec.type, value);
  if (spec.align == '=') raise_value_error("'=' alignment not allowed in string format specifier");
  Value text = value;
  if (spec.precision >= 0) text = get_slice(rt, value, Value::none(), Value::integer(spec.precision), Value::none());
  pad(out, text.as<StringObject>(), 0, spec, spec.align == 0 ? '<' : spec.align);
}

void format_number(Runtime& rt, TextBuilder& out, const Value& value, const Spec& spec) {
  std::string digits;
  bool negative = false;
  std::string_view prefix;
  const bool real_type = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is_any_int() && !real_type) {
    if (spec.type == 'c') {
      digits = to_utf8(static_cast<char32_t>(to_index(value, "%c arg")));
    } else {
      if (spec.type != 0 && std::string_view("dnxXob").find(spec.type) == std::string_view::npos)
        unknown_code(spec.type, value);
      if (spec.precision >= 0) raise_value_error("Precision not allowed in integer format specifier");
      BigInt magnitude = to_big(value);
      negative = magnitude.is_negative();
      if (negative) magnitude = -magnitude;
      digits = magnitude.to_string(radix(spec.type).base);
      if (spec.type == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
      if (spec.alternate) prefix = radix(spec.type).prefix;
    }
  } else {
    const double d = to_double(rt, value);
    negative = std::signbit(d) && !std::isnan(d);
    if (spec.type == 0 && spec.precision < 0) {
      digits = float_repr(std::fabs(d));
    } else if (spec.type == 0) {
      digits = real_digits(d, 'g', spec.precision, spec.alternate);
      if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
    } else if (!real_type && spec.type != 'n') {
      unknown_code(spec.type, value);
    } else {
      digits = real_digits(d, spec.type == 'n' ? 'g' : spec.type, spec.precision, spec.alternate);
    }
  }
  if (spec.grouping != 0) digits = group_digits(std::move(digits), spec.grouping, radix(spec.type).base == 10 ? 3 : 4);
  const std::string head = sign_of(negative, spec.sign) + std::string(prefix);
  const Value text = make_string(rt, head + digits);
  pad(out, text.as<StringObject>(), head.size(), spec, spec.align == 0 ? '>' : spec.align);
}

void format_value(Runtime& rt, TextBuilder& out, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) {
    append_str(rt, out, value);
    return;
  }
  const Spec spec = parse_spec(spec_text, value);
  if (value.is_string())
    format_string(rt, out, value, spec);
  else if (value.is_number())
    format_number(rt, out, value, spec);
  else
    raise_type_error(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const Arguments& arguments) : rt_(rt), arguments_(arguments) {}

  void run(TextBuilder& out, const StringObject& format, int depth) {
    const std::string_view text = format.text;
    if (depth > 2) raise_value_error("Max string recursion exceeded");
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, brace);
      if (brace == text.size()) return;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out.append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') raise_value_error("Single '}' encountered in format string");
      at = field(out, format, brace + 1, depth);
    }
  }

 private:
  // One replacement field that starts behind its brace; returns where the text goes on.
  std::size_t field(TextBuilder& out, const StringObject& format, std::size_t at, int depth) {
    const std::string_view text = format.text;
    std::size_t end = at;
    for (int open = 1; end < text.size(); ++end) {
      if (text[end] == '{') ++open;
      if (text[end] == '}' && --open == 0) break;
    }
    if (end >= text.size())
      raise_value_error(at >= text.size() ? "Single '{' encountered in format string"
                                          : "expected '}' before end of string");
    std::string_view inside = text.substr(at, end - at);
    const std::size_t stop = std::min(inside.find_first_of("!:"), inside.size());
    const std::string_view path = inside.substr(0, stop);
    char conversion = 0;
    std::size_t rest = stop;
    if (rest < inside.size() && inside[rest] == '!') {
      if (rest + 1 >= inside.size()) raise_value_error("end of string while looking for conversion specifier");
      conversion = inside[rest + 1];
      rest += 2;
      if (rest < inside.size() && inside[rest] != ':') raise_value_error("expected ':' after conversion specifier");
    }
    Value value = look_up(path);
    if (conversion == 's') value = to_string(rt_, value);
    if (conversion == 'r' || conversion == 'a') {
      TextBuilder shown(rt_);
      append_repr(rt_, shown, value);
      value = shown.finish();
    } else if (conversion != 0 && conversion != 's') {
      raise_value_error(fmt::format("Unknown conversion specifier {}", conversion));
    }
    TextBuilder spec(rt_);
    if (rest < inside.size()) {
      const Value raw = substring(rt_, format, at + rest + 1, end);
      run(spec, raw.as<StringObject>(), depth + 1);
    }
    format_value(rt_, out, value, spec.take_text());
    return end + 1;
  }

  // "0.name[key]" and so on; an empty first part takes the next positional argument.
  Value look_up(std::string_view path) {
    const std::size_t stop = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, stop));
    for (std::size_t at = stop; at < path.size();) {
      if (path[at] == '.') {
        const std::size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        value = get_attribute(rt_, value, path.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const std::size_t close = path.find(']', at);
        if (path[at] != '[' || close == std::string_view::npos) raise_value_error("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, close - at - 1);
        Value number;
        const bool numeric = !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
        if (numeric) parse_integer(rt_, key, 10, number);
        value = get_item(rt_, value, numeric ? number : make_string(rt_, key, Origin::literal));
        at = close + 1;
      }
    }
    return value;
  }

  Value first(std::string_view name) {
    std::size_t index = 0;
    if (name.empty()) {
      index = next_++;
    } else if (name.find_first_not_of("0123456789") == std::string_view::npos && name.size() < 10) {
      std::from_chars(name.data(), name.data() + name.size(), index);
    } else {
      for (const auto& [key, value] : arguments_.named)
        if (key == name) return value;
      raise("KeyError", fmt::format("'{}'", name));
    }
    if (index >= arguments_.positional.size())
      raise("IndexError", fmt::format("Replacement index {} out of range for positional args tuple", index));
    return arguments_.positional[index];
  }

  Runtime& rt_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

// --- format % values
// -------------------------------------------------------------------------------------------------------------

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const StringObject& format, const Value& arguments)
      : rt_(rt), format_(format), text_(format.text), out_(rt), arguments_(arguments) {}

  Value run() {
    while (at_ < text_.size()) {
      const std::size_t percent = std::min(text_.find('%', at_), text_.size());
      out_.append(format_, at_, percent);
      at_ = percent;
      if (at_ < text_.size()) directive();
    }
    const bool mapping = arguments_.is(Kind::dict) || arguments_.is(Kind::list);
    if (next_ < count() && !used_mapping_ && !(mapping && next_ == 0))
      raise_type_error("not all arguments converted during string formatting");
    return out_.finish(format_.markup);
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::size_t count() const { return arguments_.is(Kind::tuple) ? items_of(arguments_).size() : 1; }

  const Value& take() {
    if (next_ >= count()) raise_type_error("not enough arguments for format string");
    const std::size_t at = next_++;
    return arguments_.is(Kind::tuple) ? items_of(arguments_)[at] : arguments_;
  }

  std::int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value& value = take();
      if (!value.is_small_int()) raise_type_error("* wants int");
      return value.as_integer();
    }
    std::int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      n = std::min(n * 10 + (peek() - '0'), limits::kTemplateMaxFieldWidth + 1);
    return n;
  }

  void directive() {
    ++at_;
    const Value* keyed = nullptr;
    if (peek() == '(') {
      const std::size_t close = text_.find(')', at_);
      if (close == std::string_view::npos) raise_value_error("incomplete format key");
      if (!arguments_.is(Kind::dict)) raise_type_error("format requires a mapping");
      const std::string_view key = text_.substr(at_ + 1, close - at_ - 1);
      keyed = arguments_.as<DictObject>().find(key);
      if (keyed == nullptr) raise("KeyError", fmt::format("'{}'", key));
      used_mapping_ = true;
      at_ = close + 1;
    }
    Spec spec;
    bool left = false;
    bool zero = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos && peek() != '\0'; ++at_) {
      left |= peek() == '-';
      zero |= peek() == '0';
      spec.alternate |= peek() == '#';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    }
    spec.width = number();
    if (spec.width < -limits::kTemplateMaxFieldWidth) raise_value_error("width or precision is too large");
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<std::int64_t>(0, number());
    }
    check_width(spec.width, spec.precision);
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    if (at_ >= text_.size()) raise_value_error("incomplete format");
    const char type = text_[at_++];
    if (type == '%') {
      out_.append("%", Origin::literal);
      return;
    }
    spec.type = type;
    spec.align = left ? '<' : zero ? '=' : '>';
    if (spec.align == '=') spec.fill = '0';
    convert(keyed != nullptr ? *keyed : take(), spec);
  }

  void convert(const Value& value, Spec spec) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        TextBuilder shown(rt_);
        if (spec.type == 's')
          append_str(rt_, shown, value);
        else
          append_repr(rt_, shown, value);
        spec.type = 's';
        if (spec.align == '=') spec.align = '>';
        spec.fill = ' ';
        format_string(rt_, out_, shown.finish(), spec);
        return;
      }
      case 'c': {
        Value text = value;
        if (value.is_small_int()) {
          const std::int64_t code = value.as_integer();
          if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            raise("OverflowError", "%c arg not in range(0x110000)");
          text = make_string(rt_, to_utf8(static_cast<char32_t>(code)));
        }
        if (!text.is_string() || text.as<StringObject>().length != 1) raise_type_error("%c requires int or char");
        spec.type = 's';
        spec.precision = -1;
        if (spec.align == '=') spec.align = '>';
        spec.fill = ' ';
        format_string(rt_, out_, text, spec);
        return;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': integer(value, spec); return;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) raise_type_error(fmt::format("must be real number, not {}", type_name(value)));
        format_number(rt_, out_, Value::real(to_double(rt_, value)), spec);
        return;
      default:
        raise_value_error(fmt::format("unsupported format character '{}' (0x{:x}) at index {}", spec.type,
                                      static_cast<unsigned>(static_cast<unsigned char>(spec.type)), at_ - 1));
    }
  }

  void integer(const Value& value, Spec spec) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    Value number = value;
    if (value.is(Kind::real) && decimal) {
      if (!std::isfinite(value.as_real())) raise("OverflowError", "cannot convert float infinity to integer");
      number = make_integer(rt_, BigInt::truncate(value.as_real()));
    }
    if (!number.is_any_int())
      raise_type_error(fmt::format("%{} format: {} is required, not {}", spec.type,
                                   decimal ? "a real number" : "an integer", type_name(value)));
    if (decimal) spec.type = 'd';
    BigInt magnitude = to_big(number);
    const bool negative = magnitude.is_negative();
    if (negative) magnitude = -magnitude;
    std::string digits = magnitude.to_string(radix(spec.type).base);
    if (spec.type == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
    if (static_cast<std::int64_t>(digits.size()) < spec.precision)
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
    const std::string head =
        sign_of(negative, spec.sign) + (spec.alternate ? std::string(radix(spec.type).prefix) : std::string());
    const Value text = make_string(rt_, head + digits);
    pad(out_, text.as<StringObject>(), head.size(), spec, spec.align);
  }

  Runtime& rt_;
  const StringObject& format_;
  std::string_view text_;
  TextBuilder out_;
  const Value& arguments_;
  std::size_t next_ = 0;
  std::size_t at_ = 0;
  bool used_mapping_ = false;
};

}  // namespace

Value percent_format(Runtime& rt, const StringObject& format, const Value& arguments) {
  return PercentFormatter(rt, format, arguments).run();
}

Value brace_format(Runtime& rt, const StringObject& format, const Arguments& arguments) {
  TextBuilder out(rt);
  BraceFormatter(rt, arguments).run(out, format, 0);
  return out.finish(format.markup);
}

}  // namespace adze::text::jinja
