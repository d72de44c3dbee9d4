// What filters, tests, methods and operators need while a template runs.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.hpp"
#include "text/jinja/error.hpp"
#include "text/jinja/heap.hpp"
#include "text/jinja/text.hpp"
#include "text/jinja/value.hpp"

namespace adze::text::jinja {

// One render. The evaluator implements calling, because only it knows macros.
class Runtime {
 public:
  Runtime() = default;
  virtual ~Runtime() = default;
  // Calls any callable; TypeError for the rest.
  virtual Value call(const Value& callee, const Arguments& arguments) = 0;
  // value | name(arguments) and value is name(arguments), by name at run time (map, select).
  Value call_filter(std::string_view name, const Value& value, const Arguments& arguments);
  bool call_test(std::string_view name, const Value& value, const Arguments& arguments);

  Heap heap;
  const CivilTime* now = nullptr;  // null: no strftime_now
};

// --- tables, found by name; null when there is none
// -------------------------------------------------------------------

using Filter = Value (*)(Runtime& rt, const Value& value, const Arguments& arguments);
using Test = bool (*)(Runtime& rt, const Value& value, const Arguments& arguments);
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Method find_method(Kind kind, std::string_view name);  // of a built-in type
Method find_string_method(std::string_view name);
bool is_mutating_method(Kind kind, std::string_view name);
Function find_global(std::string_view name);

// --- access
// -------------------------------------------------------------------------------------------------------------

Value make_undefined(Runtime& rt, const Value& holder, const Value& name);
Value make_undefined_variable(Runtime& rt, std::string_view name);
Value make_undefined_hint(Runtime& rt, std::string_view hint);
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);  // x.name
// x.name without the element of that name as a way out: undefined when x itself has no such attribute.
Value get_own_attribute(Runtime& rt, const Value& object, std::string_view name);
Value get_item(Runtime& rt, const Value& object, const Value& key);  // x[key]
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

// --- operators
// ----------------------------------------------------------------------------------------------------------

enum class BinaryOp : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& a);
Value plus(Runtime& rt, const Value& a);

// --- numbers
// ------------------------------------------------------------------------------------------------------------

std::string float_repr(double value);               // repr(float)
int decimal_exponent(std::string_view scientific);  // of "1.5e-07"
Value make_integer(Runtime& rt, BigInt value);
BigInt to_big(const Value& value);                  // boolean, integer or big
double to_double(Runtime& rt, const Value& value);  // any number; OverflowError
// int(text, base); nothing when it is not one.
bool parse_integer(Runtime& rt, std::string_view text, int base, Value& out);
// float(text).
bool parse_float(std::string_view text, double& out);
Value round_half_even(Runtime& rt, const Value& number, std::int64_t digits, bool has_digits);  // round()

// An index: boolean or integer, else TypeError naming what it is for.
std::int64_t to_index(const Value& value, std::string_view what);

// --- text
// ---------------------------------------------------------------------------------------------------------------

Value percent_format(Runtime& rt, const StringObject& format, const Value& arguments);    // format % arguments
Value brace_format(Runtime& rt, const StringObject& format, const Arguments& arguments);  // format.format(...)
Value to_json(Runtime& rt, const Value& value, const Arguments& options);
std::string format_time(const CivilTime& time, std::string_view format);  // strftime, C locale

// --- building values
// ----------------------------------------------------------------------------------------------------

Value new_list(Runtime& rt, std::vector<Value> items);
Value new_tuple(Runtime& rt, std::vector<Value> items);
// Checks that a Value is a string and gives it; TypeError "WHAT must be str, not ..." otherwise.
const StringObject& expect_string(const Value& value, std::string_view what);

// Binds call arguments to parameters as Python does: by position, then by name.
class Bound {
 public:
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        std::size_t required = 0);
  // Null when the argument was not given.
  const Value* operator[](std::size_t index) const { return values_[index]; }
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  bool flag(Runtime& rt, std::size_t index, bool otherwise) const;
  const StringObject* string(std::size_t index) const;  // null when absent or none

 private:
  static constexpr std::size_t kMaxParameters = 8;
  std::string_view function_;
  const Value* values_[kMaxParameters] = {};
};

}  // namespace adze::text::jinja
