#include "text/jinja/value.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {

// --- containers
// ---------------------------------------------------------------------------------------------------------

void Value::release(Object* object) noexcept {
  if (--object->refs == 0) object->heap->bury(object);
}

void SequenceObject::append(Value value) {
  if (items.size() == items.capacity()) {
    const std::size_t before = items.capacity();
    const std::size_t grown = std::max<std::size_t>(4, before * 2);
    heap->charge(*this, grown * sizeof(Value));
    items.reserve(grown);
    heap->refund(*this, before * sizeof(Value));
  }
  heap->step();
  items.push_back(std::move(value));
}

Value new_list(Runtime& rt, std::vector<Value> items) {
  auto* list = rt.heap.make<SequenceObject>(Kind::list);
  const Value value(list);
  rt.heap.charge(*list, items.capacity() * sizeof(Value));
  rt.heap.step(items.size());
  list->items = std::move(items);
  return value;
}

Value new_tuple(Runtime& rt, std::vector<Value> items) {
  auto* tuple = rt.heap.make<SequenceObject>(Kind::tuple);
  const Value value(tuple);
  rt.heap.charge(*tuple, items.capacity() * sizeof(Value));
  rt.heap.step(items.size());
  tuple->items = std::move(items);
  return value;
}

namespace {

constexpr std::uint64_t kHashSeed = 0x9e3779b97f4a7c15u;

std::uint64_t mix(std::uint64_t h) {
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h;
}

std::uint64_t hash_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

}  // namespace

const Value* DictObject::find(std::string_view key) const {
  heap->step();
  if (entries.size() < kIndexFrom) {
    for (const auto& [k, v] : entries)
      if (k.is_string() && k.as<StringObject>().text == key) return &v;
    return nullptr;
  }
  const std::size_t mask = index_.size() - 1;
  const std::uint64_t h = hash_text(key);
  for (std::size_t slot = mix(h) & mask; index_[slot] >= 0; slot = (slot + 1) & mask) {
    const auto at = static_cast<std::size_t>(index_[slot]);
    const Value& k = entries[at].first;
    if (hashes_[at] == h && k.is_string() && k.as<StringObject>().text == key) return &entries[at].second;
  }
  return nullptr;
}

std::int64_t DictObject::locate(Runtime& rt, const Value& key, std::uint64_t h) const {
  heap->step();
  if (entries.size() < kIndexFrom) {
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (hashes_[i] == h && equal(rt, entries[i].first, key)) return static_cast<std::int64_t>(i);
    return -1;
  }
  const std::size_t mask = index_.size() - 1;
  for (std::size_t slot = mix(h) & mask; index_[slot] >= 0; slot = (slot + 1) & mask) {
    heap->step();
    const auto at = static_cast<std::size_t>(index_[slot]);
    if (hashes_[at] == h && equal(rt, entries[at].first, key)) return index_[slot];
  }
  return -1;
}

const Value* DictObject::find(Runtime& rt, const Value& key) const {
  if (key.is_string()) return find(key.as<StringObject>().text);
  const std::int64_t at = locate(rt, key, hash(rt, key));
  return at < 0 ? nullptr : &entries[static_cast<std::size_t>(at)].second;
}

void DictObject::rebuild_index(std::size_t slots) {
  index_.assign(slots, -1);
  const std::size_t mask = slots - 1;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::size_t slot = mix(hashes_[i]) & mask;
    while (index_[slot] >= 0) slot = (slot + 1) & mask;
    index_[slot] = static_cast<std::int32_t>(i);
  }
}

void DictObject::set(Runtime& rt, Value key, Value value) {
  const std::uint64_t h = hash(rt, key);
  const std::int64_t at = locate(rt, key, h);
  if (at >= 0) {
    entries[static_cast<std::size_t>(at)].second = std::move(value);
    return;
  }
  // An entry: key, value, hash, and twice that for the growth of the vectors; up to four index slots.
  heap->charge(*this, 2 * (sizeof(entries[0]) + sizeof(h)) + 4 * sizeof(std::int32_t));
  entries.emplace_back(std::move(key), std::move(value));
  hashes_.push_back(h);
  if (entries.size() < kIndexFrom) return;
  if (entries.size() * 2 > index_.size()) {
    rebuild_index(std::bit_ceil(entries.size() * 4));
    heap->step(entries.size());
    return;
  }
  const std::size_t mask = index_.size() - 1;
  std::size_t slot = mix(h) & mask;
  while (index_[slot] >= 0) slot = (slot + 1) & mask;
  index_[slot] = static_cast<std::int32_t>(entries.size() - 1);
}

// --- types
// --------------------------------------------------------------------------------------------------------------

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::missing: return "missing";
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer:
    case Kind::big: return "int";
    case Kind::real: return "float";
    case Kind::string: return value.as<StringObject>().markup ? "Markup" : "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::view:
      switch (value.as<ViewObject>().what) {
        case ViewOf::keys: return "dict_keys";
        case ViewOf::values: return "dict_values";
        case ViewOf::items: return "dict_items";
      }
      break;
    case Kind::range: return "range";
    case Kind::name_space: return "Namespace";
    case Kind::iterator: return value.as<IteratorObject>().type_name;
    case Kind::function: return "function";
    case Kind::method: return "builtin_function_or_method";
    case Kind::macro: return "Macro";
    case Kind::loop: return "LoopContext";
    case Kind::cycler: return "Cycler";
    case Kind::joiner: return "Joiner";
    case Kind::frame: break;
  }
  return "object";
}

std::string object_type_repr(const Value& value) {
  const std::string name(type_name(value));
  switch (value.kind()) {
    case Kind::none: return "None";
    case Kind::undefined:
    case Kind::macro:
    case Kind::loop: return fmt::format("jinja2.runtime.{} object", name);
    case Kind::name_space:
    case Kind::cycler:
    case Kind::joiner: return fmt::format("jinja2.utils.{} object", name);
    default: return fmt::format("{}{} object", name == "Markup" ? "markupsafe." : "", name);
  }
}

bool truthy(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.as_integer() != 0;
    case Kind::real: return value.as_real() != 0;
    case Kind::string: return !value.as<StringObject>().text.empty();
    case Kind::list:
    case Kind::tuple: return !value.as<SequenceObject>().items.empty();
    case Kind::dict: return !value.as<DictObject>().entries.empty();
    case Kind::view: return truthy(rt, value.as<ViewObject>().dict);
    case Kind::range: return value.as<RangeObject>().length != 0;
    case Kind::loop: return length(rt, value) != 0;
    default: return true;
  }
}

void raise_undefined(Runtime& rt, const Value& undefined) {
  const auto& u = undefined.as<UndefinedObject>();
  std::string message = u.hint;
  if (message.empty()) {
    const std::string name = repr(rt, u.name);
    if (u.holder.is_missing())
      message = name + " is undefined";
    else if (u.name.is_string())
      message = fmt::format("'{}' has no attribute {}", object_type_repr(u.holder), name);
    else
      message = fmt::format("{} has no element {}", object_type_repr(u.holder), name);
  }
  raise(u.unsafe ? "SecurityError" : "UndefinedError", std::move(message));
}

// --- equality, order, hash
// -----------------------------------------------------------------------------------------------

namespace {

// -1, 0, 1; 2 when one of them is NaN.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int())
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  if (a.is(Kind::real) && b.is(Kind::real)) {
    const double x = a.as_real();
    const double y = b.as_real();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
  }
  if (a.is_any_int() && b.is_any_int()) {
    const auto order = to_big(a) <=> to_big(b);
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (b.is_any_int()) {
    const int order = compare_numbers(b, a);
    return order == 2 ? 2 : -order;
  }
  const double y = b.as_real();  // a is an integer
  if (std::isnan(y)) return 2;
  if (std::isinf(y)) return y > 0 ? -1 : 1;
  const BigInt whole = BigInt::truncate(y);
  const auto order = to_big(a) <=> whole;
  if (order != 0) return order < 0 ? -1 : 1;
  const double rest = y - std::trunc(y);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

bool equal_dicts(Runtime& rt, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(rt, key);
    if (other == nullptr || !equal(rt, value, *other)) return false;
  }
  return true;
}

std::string_view order_sign(Order order) {
  switch (order) {
    case Order::less: return "<";
    case Order::less_equal: return "<=";
    case Order::greater: return ">";
    case Order::greater_equal: return ">=";
  }
  return "?";
}

bool holds(Order order, int comparison) {
  switch (order) {
    case Order::less: return comparison == -1;
    case Order::less_equal: return comparison == -1 || comparison == 0;
    case Order::greater: return comparison == 1;
    case Order::greater_equal: return comparison == 1 || comparison == 0;
  }
  return false;
}

}  // namespace

bool equal(Runtime& rt, const Value& a, const Value& b) {
  rt.heap.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::none:
    case Kind::undefined: return true;
    case Kind::string: {
      const std::string& x = a.as<StringObject>().text;
      const std::string& y = b.as<StringObject>().text;
      if (x.size() != y.size()) return false;
      rt.heap.step_bytes(x.size());
      return x == y;
    }
    case Kind::list:
    case Kind::tuple: {
      if (a.object() == b.object()) return true;
      const Depth depth(rt.heap);
      const auto& x = a.as<SequenceObject>().items;
      const auto& y = b.as<SequenceObject>().items;
      if (x.size() != y.size()) return false;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (!equal(rt, x[i], y[i])) return false;
      return true;
    }
    case Kind::dict: {
      if (a.object() == b.object()) return true;
      const Depth depth(rt.heap);
      return equal_dicts(rt, a.as<DictObject>(), b.as<DictObject>());
    }
    case Kind::range: {
      const auto& x = a.as<RangeObject>();
      const auto& y = b.as<RangeObject>();
      return x.length == y.length && (x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step)));
    }
    case Kind::method: {
      const auto& x = a.as<MethodObject>();
      const auto& y = b.as<MethodObject>();
      return x.method == y.method && x.self.object() == y.self.object();
    }
    default: return a.object() == b.object();
  }
}

bool ordered(Runtime& rt, const Value& a, Order order, const Value& b) {
  rt.heap.step();
  if (a.is_undefined()) raise_undefined(rt, a);
  if (b.is_undefined()) raise_undefined(rt, b);
  if (a.is_number() && b.is_number()) return holds(order, compare_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    // UTF-8 sorts as its code points do.
    const auto& x = a.as<StringObject>().text;
    const auto& y = b.as<StringObject>().text;
    rt.heap.step_bytes(std::min(x.size(), y.size()));
    const int c = x.compare(y);
    return holds(order, c < 0 ? -1 : c > 0 ? 1 : 0);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Depth depth(rt.heap);
    const auto& x = a.as<SequenceObject>().items;
    const auto& y = b.as<SequenceObject>().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(rt, x[i], y[i])) return ordered(rt, x[i], order, y[i]);
    return holds(order, x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
  }
  raise_type_error(fmt::format("'{}' not supported between instances of '{}' and '{}'", order_sign(order), type_name(a),
                               type_name(b)));
}

std::uint64_t hash(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::none: return 0x5bd1e995;
    case Kind::boolean:
    case Kind::integer: return mix(static_cast<std::uint64_t>(value.as_integer()) + kHashSeed);
    case Kind::real: {
      const double d = value.as_real();
      if (d == std::trunc(d) && std::fabs(d) < 9.2e18) return hash(rt, Value::integer(static_cast<std::int64_t>(d)));
      return mix(std::bit_cast<std::uint64_t>(d));
    }
    case Kind::big: return hash_text(value.as<BigObject>().value.to_string(16));
    case Kind::string: {
      rt.heap.step_bytes(value.as<StringObject>().text.size());
      return hash_text(value.as<StringObject>().text);
    }
    case Kind::tuple: {
      const Depth depth(rt.heap);
      std::uint64_t h = kHashSeed;
      for (const Value& item : value.as<SequenceObject>().items) {
        rt.heap.step();
        h = mix(h ^ hash(rt, item));
      }
      return h;
    }
    case Kind::list:
    case Kind::dict:
    case Kind::view: raise_type_error(fmt::format("unhashable type: '{}'", type_name(value)));
    case Kind::undefined: return 1;
    default: return mix(reinterpret_cast<std::uintptr_t>(value.object()));
  }
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string: {
      if (!item.is_string())
        raise_type_error(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      rt.heap.step_bytes(container.as<StringObject>().text.size());
      return container.as<StringObject>().text.find(item.as<StringObject>().text) != std::string::npos;
    }
    case Kind::dict: return container.as<DictObject>().find(rt, item) != nullptr;
    case Kind::view:
      if (container.as<ViewObject>().what == ViewOf::keys)
        return container.as<ViewObject>().dict.as<DictObject>().find(rt, item) != nullptr;
      break;
    case Kind::range: {
      const auto& range = container.as<RangeObject>();
      if (!item.is_small_int()) break;
      if (range.length == 0) return false;
      const std::int64_t wanted = item.as_integer();
      const std::int64_t last = range.at(range.length - 1);
      if (wanted < std::min(range.start, last) || wanted > std::max(range.start, last)) return false;
      const auto bits = [](std::int64_t i) { return static_cast<std::uint64_t>(i); };
      const std::uint64_t distance =
          range.step > 0 ? bits(wanted) - bits(range.start) : bits(range.start) - bits(wanted);
      return distance % (range.step > 0 ? bits(range.step) : 0 - bits(range.step)) == 0;
    }
    default: break;
  }
  if (!is_iterable(container))
    raise_type_error(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  const Value iterator = iterate(rt, container);
  for (Value next; iterator.as<IteratorObject>().next(rt, next);)
    if (equal(rt, next, item)) return true;
  return false;
}

// --- str and repr
// ---------------------------------------------------------------------------------------------------------

namespace {

void append_string_repr(Runtime& rt, TextBuilder& out, const StringObject& string) {
  const std::string_view text = string.text;
  const bool use_double = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char32_t quote = use_double ? '"' : '\'';
  const Origin around = overall_origin(string);
  OriginCursor cursor(string);
  if (string.markup) out.append("Markup(", around);
  out.append_code_point(quote, around);
  rt.heap.step(string.length);
  for (std::size_t at = 0; at < text.size();) {
    const Origin origin = cursor.at(at);
    const char32_t code = decode_at(text, at);
    if (code == quote || code == '\\') {
      out.append("\\", origin);
      out.append_code_point(code, origin);
    } else if (code == '\n') {
      out.append("\\n", origin);
    } else if (code == '\r') {
      out.append("\\r", origin);
    } else if (code == '\t') {
      out.append("\\t", origin);
    } else if (is_printable(code)) {
      out.append_code_point(code, origin);
    } else {
      const auto number = static_cast<std::uint32_t>(code);
      out.append(number < 0x100     ? fmt::format("\\x{:02x}", number)
                 : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                    : fmt::format("\\U{:08x}", number),
                 origin);
    }
  }
  out.append_code_point(quote, around);
  if (string.markup) out.append(")", around);
}

void append_items(Runtime& rt, TextBuilder& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(", ", Origin::data);
    first = false;
    append_repr(rt, out, item);
  }
}

void append_entries(Runtime& rt, TextBuilder& out, const DictObject& dict) {
  out.append("{", Origin::data);
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.append(", ", Origin::data);
    first = false;
    append_repr(rt, out, key);
    out.append(": ", Origin::data);
    append_repr(rt, out, value);
  }
  out.append("}", Origin::data);
}

void append_range(TextBuilder& out, const RangeObject& range) {
  out.append(range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                             : fmt::format("range({}, {}, {})", range.start, range.stop, range.step),
             Origin::data);
}

}  // namespace

void append_repr(Runtime& rt, TextBuilder& out, const Value& value) {
  const Depth depth(rt.heap);
  rt.heap.step();
  switch (value.kind()) {
    case Kind::undefined: out.append("Undefined", Origin::data); return;
    case Kind::string: append_string_repr(rt, out, value.as<StringObject>()); return;
    case Kind::list:
      out.append("[", Origin::data);
      append_items(rt, out, value.as<SequenceObject>().items);
      out.append("]", Origin::data);
      return;
    case Kind::tuple:
      out.append("(", Origin::data);
      append_items(rt, out, value.as<SequenceObject>().items);
      out.append(value.as<SequenceObject>().items.size() == 1 ? ",)" : ")", Origin::data);
      return;
    case Kind::dict: append_entries(rt, out, value.as<DictObject>()); return;
    case Kind::name_space:
      out.append("<Namespace ", Origin::data);
      append_entries(rt, out, value.as<NamespaceObject>());
      out.append(">", Origin::data);
      return;
    case Kind::view:
      out.append(fmt::format("{}([", type_name(value)), Origin::data);
      append_items(rt, out, items_of(to_list(rt, value)));
      out.append("])", Origin::data);
      return;
    case Kind::range: append_range(out, value.as<RangeObject>()); return;
    case Kind::function:
      out.append(fmt::format("<function {}>", value.as<FunctionObject>().name), Origin::data);
      return;
    case Kind::method:
      out.append(fmt::format("<built-in method {} of {} object>", value.as<MethodObject>().name,
                             type_name(value.as<MethodObject>().self)),
                 Origin::data);
      return;
    case Kind::iterator:
    case Kind::macro:
    case Kind::loop:
    case Kind::cycler:
    case Kind::joiner: out.append(fmt::format("<{} object>", type_name(value)), Origin::data); return;
    case Kind::missing:
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
    case Kind::big:
    case Kind::frame: append_str(rt, out, value); return;
  }
}

void append_str(Runtime& rt, TextBuilder& out, const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined: return;
    case Kind::none: out.append("None", Origin::data); return;
    case Kind::boolean: out.append(value.as_boolean() ? "True" : "False", Origin::data); return;
    case Kind::integer: out.append(fmt::format("{}", value.as_integer()), Origin::data); return;
    case Kind::real: out.append(float_repr(value.as_real()), Origin::data); return;
    case Kind::big: {
      rt.heap.step(64);
      out.append(value.as<BigObject>().value.to_string(), Origin::data);
      return;
    }
    case Kind::string: out.append(value.as<StringObject>()); return;
    case Kind::joiner:
    default: append_repr(rt, out, value); return;
  }
}

Value to_string(Runtime& rt, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder out(rt);
  append_str(rt, out, value);
  return out.finish();
}

std::string repr(Runtime& rt, const Value& value) {
  TextBuilder out(rt);
  append_repr(rt, out, value);
  return out.take_text();
}

const StringObject& expect_string(const Value& value, std::string_view what) {
  if (!value.is_string()) raise_type_error(fmt::format("{} must be str, not {}", what, type_name(value)));
  return value.as<StringObject>();
}

}  // namespace adze::text::jinja
