// Numbers as Python prints, reads and rounds them.
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {

int decimal_exponent(std::string_view scientific) {
  std::size_t at = scientific.find_first_of("eE") + 1;
  if (scientific[at] == '+') ++at;  // from_chars does not take it
  int exponent = 0;
  std::from_chars(scientific.data() + at, scientific.data() + scientific.size(), exponent);
  return exponent;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, written.ptr);  // shortest that reads back the same: d.ddde[+-]dd
  const std::size_t e = text.find('e');
  const int exponent = decimal_exponent(text);
  std::string digits;
  std::string out;
  for (const char c : text.substr(0, e)) {
    if (c == '-')
      out.push_back('-');
    else if (c != '.')
      digits.push_back(c);
  }
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out.append(".").append(digits, 1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out.append(digits, 0, whole).append(".").append(digits, whole);
}

Value make_integer(Runtime& rt, BigInt value) {
  if (const auto small = value.to_int64()) return Value::integer(*small);
  rt.heap.step(16);
  return rt.heap.make<BigObject>(std::move(value));
}

BigInt to_big(const Value& value) {
  return value.is(Kind::big) ? value.as<BigObject>().value : BigInt(value.as_integer());
}

double to_double(Runtime& rt, const Value& value) {
  rt.heap.step();
  if (value.is(Kind::real)) return value.as_real();
  if (!value.is(Kind::big)) return static_cast<double>(value.as_integer());
  rt.heap.step(64);
  const double d = value.as<BigObject>().value.to_double();
  if (std::isinf(d)) raise("OverflowError", "int too large to convert to float");
  return d;
}

namespace {

// The text without white space around it, digits of any script made ASCII.
std::string plain_number(std::string_view text) {
  std::string out;
  std::size_t last = 0;
  bool started = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = decode_at(text, at);
    if (!started && is_space(code)) continue;
    started = true;
    const int digit = decimal_value(code);
    append_utf8(out, digit >= 0 ? static_cast<char32_t>('0' + digit) : code);
    if (!is_space(code)) last = out.size();
  }
  out.resize(last);
  return out;
}

// Removes underscores between digits; false when one stands elsewhere.
bool drop_underscores(std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto alphanumeric = [&](std::size_t k) {
      return k < text.size() && std::isalnum(static_cast<unsigned char>(text[k])) != 0;
    };
    if (i == 0 || !alphanumeric(i - 1) || !alphanumeric(i + 1)) return false;
  }
  text = std::move(out);
  return true;
}

}  // namespace

bool parse_integer(Runtime& rt, std::string_view text, int base, Value& out) {
  rt.heap.step_bytes(text.size());
  std::string number = plain_number(text);
  bool negative = false;
  if (!number.empty() && (number[0] == '-' || number[0] == '+')) {
    negative = number[0] == '-';
    number.erase(0, 1);
  }
  const auto prefixed = [&](char letter, int of_base) {
    return (base == 0 || base == of_base) && number.size() > 2 && number[0] == '0' && (number[1] | 0x20) == letter;
  };
  for (const auto& [letter, of_base] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!prefixed(letter, of_base)) continue;
    number.erase(0, number[2] == '_' ? 3 : 2);
    base = of_base;
    break;
  }
  if (base == 0) {
    base = 10;
    if (number.size() > 1 && number[0] == '0' && number.find_first_not_of("0_") != std::string::npos) return false;
  }
  if (base < 2 || base > 36 || number.empty() || !drop_underscores(number)) return false;
  if (number.size() > 4300) return false;
  const auto value = BigInt::parse(number, base);
  if (!value) return false;
  rt.heap.step(number.size());
  out = make_integer(rt, negative ? -*value : *value);
  return true;
}

bool parse_float(std::string_view text, double& out) {
  std::string number = plain_number(text);
  if (!drop_underscores(number)) return false;
  std::string lower;
  for (const char c : number) lower.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c);
  const std::string_view unsigned_part =
      std::string_view(lower).substr(lower.starts_with('-') || lower.starts_with('+'));
  const bool word = unsigned_part == "inf" || unsigned_part == "infinity" || unsigned_part == "nan";
  if (!word && (unsigned_part.empty() || unsigned_part.find_first_not_of("0123456789.e+-") != std::string_view::npos))
    return false;
  char* end = nullptr;
  out = std::strtod(lower.c_str(), &end);
  return end == lower.c_str() + lower.size();
}

std::int64_t to_index(const Value& value, std::string_view what) {
  if (value.is_small_int()) return value.as_integer();
  if (value.is(Kind::big)) raise("OverflowError", "Python int too large to convert to C ssize_t");
  raise_type_error(fmt::format("{} must be an integer, not '{}'", what, type_name(value)));
}

Value round_half_even(Runtime& rt, const Value& number, std::int64_t digits, bool has_digits) {
  if (number.is_any_int()) {
    if (!has_digits || digits >= 0) return plus(rt, number);
    if (digits < -400) return Value::integer(0);
    BigInt unit(1);
    for (std::int64_t i = 0; i < -digits; ++i) unit = unit * BigInt(10);
    BigInt quotient;
    BigInt rest;
    BigInt::floor_divide(to_big(number), unit, quotient, rest);
    const auto order = rest + rest <=> unit;
    if (order > 0 || (order == 0 && quotient.is_odd())) quotient = quotient + BigInt(1);
    return make_integer(rt, quotient * unit);
  }
  if (!number.is(Kind::real))
    raise_type_error(fmt::format("type {} doesn't define __round__ method", type_name(number)));
  const double value = number.as_real();
  if (!has_digits) {
    if (std::isnan(value)) raise_value_error("cannot convert float NaN to integer");
    if (std::isinf(value)) raise("OverflowError", "cannot convert float infinity to integer");
    return make_integer(rt, BigInt::truncate(std::nearbyint(value)));
  }
  if (!std::isfinite(value) || digits > 323) return number;
  if (digits < -308) return Value::real(std::copysign(0.0, value));
  if (digits >= 0) return Value::real(std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr));
  // Exact on the decimal expansion of the integer part and whether anything is left behind it.
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  const double scaled = value / scale;
  double rounded = std::round(scaled);
  if (std::fabs(scaled - rounded) == 0.5) rounded = 2.0 * std::round(scaled / 2.0);
  return Value::real(rounded * scale);
}

}  // namespace adze::text::jinja
