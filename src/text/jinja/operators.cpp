// Arithmetic on values, with Python's rules and its words when the types do not fit.
#include <cmath>

#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {
namespace {

std::string_view sign(BinaryOp op) {
  switch (op) {
    case BinaryOp::add: return "+";
    case BinaryOp::subtract: return "-";
    case BinaryOp::multiply: return "*";
    case BinaryOp::divide: return "/";
    case BinaryOp::floor_divide: return "//";
    case BinaryOp::modulo: return "%";
    case BinaryOp::power: return "** or pow()";
  }
  return "?";
}

[[noreturn]] void unsupported(BinaryOp op, const Value& a, const Value& b) {
  raise_type_error(
      fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign(op), type_name(a), type_name(b)));
}

[[noreturn]] void zero_division(std::string_view what) { raise("ZeroDivisionError", std::string(what)); }

Value power_of(Runtime& rt, const Value& a, const Value& b);

double python_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (rest == 0) rest = std::copysign(0.0, b);
  return rest;
}

Value real_binary(Runtime& rt, BinaryOp op, double a, double b, const Value& left, const Value& right) {
  switch (op) {
    case BinaryOp::add: return Value::real(a + b);
    case BinaryOp::subtract: return Value::real(a - b);
    case BinaryOp::multiply: return Value::real(a * b);
    case BinaryOp::divide:
      if (b == 0)
        zero_division(left.is_any_int() && right.is_any_int() ? "division by zero" : "float division by zero");
      return Value::real(a / b);
    case BinaryOp::floor_divide: {
      if (b == 0) zero_division("float floor division by zero");
      const double rest = python_modulo(a, b);
      double quotient = (a - rest) / b;
      if (quotient != 0) {
        const double whole = std::floor(quotient);
        quotient = quotient - whole > 0.5 ? whole + 1 : whole;
      } else {
        quotient = std::copysign(0.0, a / b);
      }
      return Value::real(quotient);
    }
    case BinaryOp::modulo:
      if (b == 0) zero_division("float modulo");
      return Value::real(python_modulo(a, b));
    case BinaryOp::power: return power_of(rt, left, right);
  }
  unsupported(op, left, right);
}

Value big_binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  const BigInt x = to_big(a);
  const BigInt y = to_big(b);
  rt.heap.step(64);
  switch (op) {
    case BinaryOp::add: return make_integer(rt, x + y);
    case BinaryOp::subtract: return make_integer(rt, x - y);
    case BinaryOp::multiply: rt.heap.step(1000); return make_integer(rt, x * y);
    case BinaryOp::floor_divide:
    case BinaryOp::modulo: {
      if (y.is_zero()) zero_division("integer division or modulo by zero");
      rt.heap.step(200'000);  // bit by bit
      BigInt quotient;
      BigInt rest;
      BigInt::floor_divide(x, y, quotient, rest);
      return make_integer(rt, op == BinaryOp::modulo ? rest : quotient);
    }
    case BinaryOp::divide:
    case BinaryOp::power: break;
  }
  unsupported(op, a, b);
}

Value integer_binary(Runtime& rt, BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::divide) return real_binary(rt, op, to_double(rt, left), to_double(rt, right), left, right);
  if (op == BinaryOp::power) return power_of(rt, left, right);
  if (left.is_small_int() && right.is_small_int()) {
    const std::int64_t a = left.as_integer();
    const std::int64_t b = right.as_integer();
    std::int64_t out = 0;
    bool overflow = false;
    switch (op) {
      case BinaryOp::add: overflow = __builtin_add_overflow(a, b, &out); break;
      case BinaryOp::subtract: overflow = __builtin_sub_overflow(a, b, &out); break;
      case BinaryOp::multiply: overflow = __builtin_mul_overflow(a, b, &out); break;
      case BinaryOp::floor_divide:
      case BinaryOp::modulo: {
        if (b == 0)
          zero_division(op == BinaryOp::modulo ? "integer modulo by zero" : "integer division or modulo by zero");
        if (b == -1) {
          if (op == BinaryOp::floor_divide) return negate(rt, left);
          break;
        }
        const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
        out = op == BinaryOp::modulo ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
        break;
      }
      case BinaryOp::divide:
      case BinaryOp::power: break;
    }
    if (!overflow) return Value::integer(out);
  }
  return big_binary(rt, op, left, right);
}

Value power_of(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_any_int() && b.is_any_int() && !to_big(b).is_negative()) {
    if (!b.is_small_int()) raise("OverflowError", "exponent is too large");
    BigInt base = to_big(a);
    BigInt out(1);
    for (auto exponent = static_cast<std::uint64_t>(b.as_integer()); exponent != 0; exponent >>= 1) {
      rt.heap.step(1000);
      if ((exponent & 1) != 0) out = out * base;
      if (exponent > 1) base = base * base;
    }
    return make_integer(rt, std::move(out));
  }
  const double x = to_double(rt, a);
  const double y = to_double(rt, b);
  if (x == 0 && y < 0) zero_division("0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y))
    raise("ValueError", "a negative number to a fractional power is complex, which templates do not have");
  const double out = std::pow(x, y);
  if (std::isinf(out) && std::isfinite(x) && std::isfinite(y))
    raise("OverflowError", "(34, 'Numerical result out of range')");
  return Value::real(out);
}

// "markup" + str escapes the other side, as Markup does.
Value escaped_unless_markup(Runtime& rt, const Value& value) {
  return value.as<StringObject>().markup ? value : escape(rt, value.as<StringObject>());
}

Value add_strings(Runtime& rt, const Value& a, const Value& b) {
  const bool markup = a.as<StringObject>().markup || b.as<StringObject>().markup;
  const Value x = markup ? escaped_unless_markup(rt, a) : a;
  const Value y = markup ? escaped_unless_markup(rt, b) : b;
  TextBuilder out(rt);
  out.append(x.as<StringObject>());
  out.append(y.as<StringObject>());
  return out.finish(markup);
}

Value repeat(Runtime& rt, const Value& sequence, const Value& times) {
  if (times.is(Kind::big)) raise("OverflowError", "cannot fit 'int' into an index-sized integer");
  const std::int64_t count = times.as_integer();
  if (sequence.is_string()) {
    TextBuilder out(rt);
    out.append_times(sequence.as<StringObject>(), count);
    return out.finish(sequence.as<StringObject>().markup);
  }
  const Value out(rt.heap.make<SequenceObject>(sequence.kind()));
  const auto& items = sequence.as<SequenceObject>().items;
  for (std::int64_t i = 0; i < count && !items.empty(); ++i)
    for (std::size_t k = 0; k < items.size(); ++k) out.as<SequenceObject>().append(items[k]);
  return out;
}

}  // namespace

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::real) || b.is(Kind::real)) return real_binary(rt, op, to_double(rt, a), to_double(rt, b), a, b);
    return integer_binary(rt, op, a, b);
  }
  if (op == BinaryOp::modulo && a.is_string()) return percent_format(rt, a.as<StringObject>(), b);
  if (a.is_undefined()) raise_undefined(rt, a);
  if (b.is_undefined()) raise_undefined(rt, b);
  if (op == BinaryOp::add) {
    if (a.is_string() && b.is_string()) return add_strings(rt, a, b);
    if (a.is_sequence() && a.kind() == b.kind()) {
      const Value out(rt.heap.make<SequenceObject>(a.kind()));
      for (const Value* side : {&a, &b})
        for (const Value& item : side->as<SequenceObject>().items) out.as<SequenceObject>().append(item);
      return out;
    }
    if (a.is_string()) raise_type_error(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
    if (a.is_sequence())
      raise_type_error(
          fmt::format("can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b), type_name(a)));
  }
  if (op == BinaryOp::multiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || v.is_sequence(); };
    if (repeatable(a) && b.is_any_int()) return repeat(rt, a, b);
    if (repeatable(b) && a.is_any_int()) return repeat(rt, b, a);
    if (repeatable(a) || repeatable(b))
      raise_type_error(
          fmt::format("can't multiply sequence by non-int of type '{}'", type_name(repeatable(a) ? b : a)));
  }
  unsupported(op, a, b);
}

Value negate(Runtime& rt, const Value& a) {
  if (a.is_undefined()) raise_undefined(rt, a);
  if (a.is(Kind::real)) return Value::real(-a.as_real());
  if (a.is_small_int() && a.as_integer() != INT64_MIN) return Value::integer(-a.as_integer());
  if (a.is_any_int()) return make_integer(rt, -to_big(a));
  raise_type_error(fmt::format("bad operand type for unary -: '{}'", type_name(a)));
}

Value plus(Runtime& rt, const Value& a) {
  if (a.is_undefined()) raise_undefined(rt, a);
  if (a.is(Kind::boolean)) return Value::integer(a.as_integer());
  if (a.is_number()) return a;
  raise_type_error(fmt::format("bad operand type for unary +: '{}'", type_name(a)));
}

}  // namespace adze::text::jinja
