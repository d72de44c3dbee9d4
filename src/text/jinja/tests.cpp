// The tests behind `is`.
#include <cmath>

#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

bool modulo_equals(Runtime& rt, const Value& value, const Value& divisor, std::int64_t rest) {
  return equal(rt, binary(rt, BinaryOp::modulo, value, divisor), Value::integer(rest));
}

const Value& only(const Arguments& arguments, std::string_view name) {
  return *Bound(name, arguments, {"other"}, 1)[0];
}

bool is_odd(Runtime& rt, const Value& v, const Arguments&) { return modulo_equals(rt, v, Value::integer(2), 1); }
bool is_even(Runtime& rt, const Value& v, const Arguments&) { return modulo_equals(rt, v, Value::integer(2), 0); }
bool is_divisible(Runtime& rt, const Value& v, const Arguments& a) {
  return modulo_equals(rt, v, only(a, "divisibleby"), 0);
}
bool is_defined(Runtime&, const Value& v, const Arguments&) { return !v.is_undefined(); }
bool is_undefined(Runtime&, const Value& v, const Arguments&) { return v.is_undefined(); }
bool is_filter(Runtime&, const Value& v, const Arguments&) {
  return v.is_string() && find_filter(v.as<StringObject>().text) != nullptr;
}
bool is_test(Runtime&, const Value& v, const Arguments&) {
  return v.is_string() && find_test(v.as<StringObject>().text) != nullptr;
}
bool is_none(Runtime&, const Value& v, const Arguments&) { return v.is_none(); }
bool is_boolean(Runtime&, const Value& v, const Arguments&) { return v.is(Kind::boolean); }
bool is_true(Runtime&, const Value& v, const Arguments&) { return v.is(Kind::boolean) && v.as_boolean(); }
bool is_false(Runtime&, const Value& v, const Arguments&) { return v.is(Kind::boolean) && !v.as_boolean(); }
bool is_integer(Runtime&, const Value& v, const Arguments&) { return v.is(Kind::integer) || v.is(Kind::big); }
bool is_float(Runtime&, const Value& v, const Arguments&) { return v.is(Kind::real); }
bool is_number(Runtime&, const Value& v, const Arguments&) { return v.is_number(); }
bool is_string(Runtime&, const Value& v, const Arguments&) { return v.is_string(); }
bool is_mapping(Runtime&, const Value& v, const Arguments&) { return v.is(Kind::dict); }
bool is_iterable_test(Runtime&, const Value& v, const Arguments&) { return is_iterable(v); }
bool is_escaped(Runtime&, const Value& v, const Arguments&) { return v.is_string() && v.as<StringObject>().markup; }

bool is_sequence(Runtime&, const Value& v, const Arguments&) {
  return v.is_string() || v.is_sequence() || v.is(Kind::dict) || v.is(Kind::range);
}

bool is_callable(Runtime&, const Value& v, const Arguments&) {
  switch (v.kind()) {
    case Kind::function:
    case Kind::method:
    case Kind::macro:
    case Kind::loop:
    case Kind::joiner:
    case Kind::undefined: return true;  // as in Python: Undefined has a __call__, which raises
    default: return false;
  }
}

bool has_case(Runtime& rt, const Value& v, std::string_view method) {
  return find_string_method(method)(rt, to_string(rt, v), {}).as_boolean();
}
bool is_lower_test(Runtime& rt, const Value& v, const Arguments&) { return has_case(rt, v, "islower"); }
bool is_upper_test(Runtime& rt, const Value& v, const Arguments&) { return has_case(rt, v, "isupper"); }

// Python's `is`: identity. Small values are identical when equal and of one type, as far as templates can tell.
bool is_same(Runtime&, const Value& v, const Arguments& a) {
  const Value& other = only(a, "sameas");
  if (v.kind() != other.kind()) return false;
  switch (v.kind()) {
    case Kind::none: return true;
    case Kind::boolean:
    case Kind::integer: return v.as_integer() == other.as_integer();
    case Kind::real: return v.as_real() == other.as_real();
    case Kind::string: return v.as<StringObject>().text == other.as<StringObject>().text;
    default: return v.object() == other.object();
  }
}

bool is_in(Runtime& rt, const Value& v, const Arguments& a) { return contains(rt, only(a, "in"), v); }
bool is_equal(Runtime& rt, const Value& v, const Arguments& a) { return equal(rt, v, only(a, "eq")); }
bool is_unequal(Runtime& rt, const Value& v, const Arguments& a) { return !equal(rt, v, only(a, "ne")); }
bool is_less(Runtime& rt, const Value& v, const Arguments& a) { return ordered(rt, v, Order::less, only(a, "lt")); }
bool is_less_equal(Runtime& rt, const Value& v, const Arguments& a) {
  return ordered(rt, v, Order::less_equal, only(a, "le"));
}
bool is_greater(Runtime& rt, const Value& v, const Arguments& a) {
  return ordered(rt, v, Order::greater, only(a, "gt"));
}
bool is_greater_equal(Runtime& rt, const Value& v, const Arguments& a) {
  return ordered(rt, v, Order::greater_equal, only(a, "ge"));
}

struct Entry {
  std::string_view name;
  Test test;
};
constexpr Entry kTests[] = {
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"filter", is_filter},
    {"test", is_test},
    {"none", is_none},
    {"boolean", is_boolean},
    {"false", is_false},
    {"true", is_true},
    {"integer", is_integer},
    {"float", is_float},
    {"lower", is_lower_test},
    {"upper", is_upper_test},
    {"string", is_string},
    {"mapping", is_mapping},
    {"number", is_number},
    {"sequence", is_sequence},
    {"iterable", is_iterable_test},
    {"callable", is_callable},
    {"sameas", is_same},
    {"escaped", is_escaped},
    {"in", is_in},
    {"==", is_equal},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"!=", is_unequal},
    {"ne", is_unequal},
    {">", is_greater},
    {"gt", is_greater},
    {"greaterthan", is_greater},
    {"ge", is_greater_equal},
    {">=", is_greater_equal},
    {"<", is_less},
    {"lt", is_less},
    {"lessthan", is_less},
    {"<=", is_less_equal},
    {"le", is_less_equal},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const Entry& entry : kTests)
    if (entry.name == name) return entry.test;
  return nullptr;
}

bool Runtime::call_test(std::string_view name, const Value& value, const Arguments& arguments) {
  const Test test = find_test(name);
  if (test == nullptr) raise("TemplateRuntimeError", fmt::format("No test named '{}' found.", name));
  heap.step();
  return test(*this, value, arguments);
}

}  // namespace adze::text::jinja
