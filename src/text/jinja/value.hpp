// The values a template computes with: Python's, as far as templates can see them.
//
// A Value is 16 bytes: a kind and either a scalar or a counted pointer to an object of the render's heap. Strings carry
// their provenance: which bytes were written in the template and which came from the request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/big_int.hpp"
#include "text/jinja/heap.hpp"

namespace adze::text::jinja {

class Runtime;

class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::none, {.integer = 0}); }
  static Value boolean(bool b) { return Value(Kind::boolean, {.integer = b ? 1 : 0}); }
  static Value integer(std::int64_t i) { return Value(Kind::integer, {.integer = i}); }
  static Value real(double d) { return Value(Kind::real, {.real = d}); }
  Value(Object* object) : kind_(object->kind), payload_{.object = object} {  // NOLINT: every object is a value
    ++object->refs;
  }
  Value(const Value& other) : kind_(other.kind_), payload_(other.payload_) {
    if (is_object()) ++object()->refs;
  }
  Value(Value&& other) noexcept : kind_(std::exchange(other.kind_, Kind::missing)), payload_(other.payload_) {}
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(payload_, other.payload_);
    return *this;
  }
  ~Value() {
    if (is_object()) release(object());
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::missing; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_number() const { return kind_ >= Kind::boolean && kind_ <= Kind::big; }
  bool is_small_int() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_any_int() const { return is_small_int() || kind_ == Kind::big; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  bool is_object() const { return kind_ == Kind::undefined || kind_ >= Kind::big; }

  std::int64_t as_integer() const { return payload_.integer; }  // boolean or integer
  bool as_boolean() const { return payload_.integer != 0; }
  double as_real() const { return payload_.real; }
  Object* object() const { return payload_.object; }
  template <class T>
  T& as() const {
    return *static_cast<T*>(object());
  }

 private:
  // Copied as a whole, never through a member: which one it holds is the kind's business.
  union Payload {
    std::int64_t integer;
    double real;
    Object* object;
  };
  Value(Kind kind, Payload payload) : kind_(kind), payload_(payload) {}
  static void release(Object* object) noexcept;  // one reference fewer
  Kind kind_ = Kind::missing;
  Payload payload_{.integer = 0};
};

// Where text comes from.
enum class Origin : std::uint8_t { literal, data };

// A stretch of a string up to byte `end` that has one origin.
struct Run {
  std::size_t end;
  Origin origin;
};

struct StringObject : Object {
  StringObject() : Object(Kind::string) {}
  std::string text;       // valid UTF-8
  std::vector<Run> runs;  // empty: all of it is `origin`
  Origin origin = Origin::literal;
  bool markup = false;  // Markup: the result of `safe` or `escape`
  bool ascii = true;
  std::size_t length = 0;  // code points

  // Byte offset of a code point, at most the size.
  std::size_t offset(std::size_t index) const;
};

struct UndefinedObject : Object {
  UndefinedObject() : Object(Kind::undefined) {}
  void drop() override { holder = name = Value(); }
  std::string hint;  // a whole sentence; else the sentence is made of holder and name
  Value holder;      // what has no such attribute or element; missing: a variable
  Value name;
  bool unsafe = false;  // SecurityError instead of UndefinedError
};

struct BigObject : Object {
  explicit BigObject(BigInt v) : Object(Kind::big), value(std::move(v)) {}
  BigInt value;
};

struct SequenceObject : Object {  // list and tuple
  explicit SequenceObject(Kind k) : Object(k) {}
  void drop() override { items.clear(); }
  void append(Value value);
  std::vector<Value> items;
  bool is_group = false;  // a (grouper, list) pair of the groupby filter, with those names as attributes
};

// Insertion-ordered, keys by Python's equality (1 == 1.0 == True). Grows only; assignment to a key replaces.
struct DictObject : Object {
  DictObject() : Object(Kind::dict) {}
  explicit DictObject(Kind k) : Object(k) {}
  void drop() override { entries.clear(); }
  const Value* find(std::string_view key) const;
  const Value* find(Runtime& rt, const Value& key) const;  // raises TypeError for unhashable keys
  void set(Runtime& rt, Value key, Value value);

  std::vector<std::pair<Value, Value>> entries;

 private:
  static constexpr std::size_t kIndexFrom = 9;  // fewer entries are searched one by one
  std::int64_t locate(Runtime& rt, const Value& key, std::uint64_t hash) const;
  void rebuild_index(std::size_t slots);
  std::vector<std::uint64_t> hashes_;  // per entry
  std::vector<std::int32_t> index_;    // open addressing, -1 free
};

struct NamespaceObject : DictObject {
  NamespaceObject() : DictObject(Kind::name_space) {}
};

enum class ViewOf : std::uint8_t { keys, values, items };
struct ViewObject : Object {
  ViewObject(Value d, ViewOf w) : Object(Kind::view), dict(std::move(d)), what(w) {}
  void drop() override { dict = Value(); }
  Value dict;
  ViewOf what;
};

struct RangeObject : Object {
  RangeObject(std::int64_t a, std::int64_t z, std::int64_t s, std::int64_t n)
      : Object(Kind::range), start(a), stop(z), step(s), length(n) {}
  std::int64_t at(std::int64_t index) const {  // wraps on the way, never at the end
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(start) +
                                     static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(step));
  }
  std::int64_t start;
  std::int64_t stop;
  std::int64_t step;
  std::int64_t length;
};

// Something that yields values once, in order.
struct IteratorObject : Object {
  explicit IteratorObject(std::string_view type) : Object(Kind::iterator), type_name(type) {}
  // Writes the next value; false at the end.
  virtual bool next(Runtime& rt, Value& out) = 0;
  std::string_view type_name;  // Python's: "generator"
};

// Call arguments: `f(1, a=2)`.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

using Function = Value (*)(Runtime& rt, const Arguments& arguments);
struct FunctionObject : Object {
  FunctionObject(std::string_view n, Function f) : Object(Kind::function), name(n), function(f) {}
  std::string_view name;
  Function function;
};

using Method = Value (*)(Runtime& rt, const Value& self, const Arguments& arguments);
struct MethodObject : Object {
  MethodObject(Value s, std::string_view n, Method m) : Object(Kind::method), self(std::move(s)), name(n), method(m) {}
  void drop() override { self = Value(); }
  Value self;
  std::string_view name;
  Method method;
};

struct CyclerObject : Object {
  CyclerObject() : Object(Kind::cycler) {}
  void drop() override { items.clear(); }
  std::vector<Value> items;
  std::size_t position = 0;
};

struct JoinerObject : Object {
  explicit JoinerObject(Value s) : Object(Kind::joiner), separator(std::move(s)) {}
  void drop() override { separator = Value(); }
  Value separator;
  bool used = false;
};

// --- what Python's built-ins say of a value
// ---------------------------------------------------------------------------

std::string_view type_name(const Value& value);    // type(x).__name__
std::string object_type_repr(const Value& value);  // Jinja's words for it in messages: "list object", "None"
bool truthy(Runtime& rt, const Value& value);      // bool(x)
bool equal(Runtime& rt, const Value& a, const Value& b);
enum class Order { less, less_equal, greater, greater_equal };
bool ordered(Runtime& rt, const Value& a, Order order, const Value& b);  // TypeError when they have no order
std::uint64_t hash(Runtime& rt, const Value& value);                     // TypeError: unhashable type
bool contains(Runtime& rt, const Value& container, const Value& item);   // item in container
bool is_iterable(const Value& value);
bool has_length(const Value& value);
std::int64_t length(Runtime& rt, const Value& value);  // len(x)
Value iterate(Runtime& rt, const Value& value);        // iter(x): an iterator
Value to_list(Runtime& rt, const Value& value);        // list(x): a new list
Value as_sequence(Runtime& rt, const Value& value);    // x itself when it is a list or tuple, else list(x)
inline const std::vector<Value>& items_of(const Value& sequence) { return sequence.as<SequenceObject>().items; }

// str(x) and repr(x) with the provenance of the strings inside.
Value to_string(Runtime& rt, const Value& value);
class TextBuilder;
void append_str(Runtime& rt, TextBuilder& out, const Value& value);
void append_repr(Runtime& rt, TextBuilder& out, const Value& value);
// repr(x) as plain text, for messages.
std::string repr(Runtime& rt, const Value& value);

// Raises what using an undefined value raises.
[[noreturn]] void raise_undefined(Runtime& rt, const Value& undefined);

}  // namespace adze::text::jinja
