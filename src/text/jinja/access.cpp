// Attributes, elements and slices, and the undefined values that stand for missing ones.
#include <algorithm>

#include "text/jinja/loop.hpp"
#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {

Value make_undefined(Runtime& rt, const Value& holder, const Value& name) {
  auto* undefined = rt.heap.make<UndefinedObject>();
  undefined->holder = holder;
  undefined->name = name;
  return undefined;
}

Value make_undefined_variable(Runtime& rt, std::string_view name) {
  return make_undefined(rt, Value(), make_string(rt, name, Origin::literal));
}

Value make_undefined_hint(Runtime& rt, std::string_view hint) {
  auto* undefined = rt.heap.make<UndefinedObject>();
  undefined->hint = hint;
  return undefined;
}

namespace {

// What the sandbox refuses: harmless to mention, an error to use.
Value make_unsafe(Runtime& rt, const Value& holder, std::string_view name) {
  auto* undefined = rt.heap.make<UndefinedObject>();
  undefined->hint = fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(holder));
  undefined->unsafe = true;
  return undefined;
}

Value cycler_next(Runtime& rt, const Value& self, const Arguments&) {
  rt.heap.step();
  auto& cycler = self.as<CyclerObject>();
  Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Value cycler_reset(Runtime&, const Value& self, const Arguments&) {
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

Value loop_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) raise_type_error("no items for cycling given");
  const auto index = static_cast<std::size_t>(std::max<std::int64_t>(0, self.as<LoopObject>().index0));
  return arguments.positional[index % arguments.positional.size()];
}

Value loop_changed(Runtime& rt, const Value& self, const Arguments& arguments) {
  return Value::boolean(self.as<LoopObject>().changed(rt, new_tuple(rt, arguments.positional)));
}

// An attribute that the object itself has (getattr); missing when it has none of that name.
Value own_attribute(Runtime& rt, const Value& object, std::string_view name) {
  const auto method = [&](std::string_view called, Method m) {
    return Value(rt.heap.make<MethodObject>(object, called, m));
  };
  switch (object.kind()) {
    case Kind::name_space: {
      const Value* value = object.as<NamespaceObject>().find(name);
      return value != nullptr ? *value : Value();
    }
    case Kind::loop: {
      if (name == "cycle") return method("cycle", loop_cycle);
      if (name == "changed") return method("changed", loop_changed);
      return object.as<LoopObject>().field(rt, name);
    }
    case Kind::cycler: {
      const auto& cycler = object.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "pos") return Value::integer(static_cast<std::int64_t>(cycler.position));
      if (name == "items") return new_tuple(rt, cycler.items);
      if (name == "next") return method("next", cycler_next);
      if (name == "reset") return method("reset", cycler_reset);
      return {};
    }
    case Kind::joiner:
      if (name == "sep") return object.as<JoinerObject>().separator;
      if (name == "used") return Value::boolean(object.as<JoinerObject>().used);
      return {};
    case Kind::boolean:
    case Kind::integer:
    case Kind::big:
      if (name == "real" || name == "numerator") return plus(rt, object);
      if (name == "imag") return Value::integer(0);
      if (name == "denominator") return Value::integer(1);
      break;
    case Kind::real:
      if (name == "real") return object;
      if (name == "imag") return Value::real(0);
      break;
    case Kind::tuple:
      if (object.as<SequenceObject>().is_group && name == "grouper") return object.as<SequenceObject>().items[0];
      if (object.as<SequenceObject>().is_group && name == "list") return object.as<SequenceObject>().items[1];
      break;
    case Kind::range:
      if (name == "start") return Value::integer(object.as<RangeObject>().start);
      if (name == "step") return Value::integer(object.as<RangeObject>().step);
      if (name == "stop") return Value::integer(object.as<RangeObject>().stop);
      break;
    default: break;
  }
  const Method found = find_method(object.kind(), name);
  return found != nullptr ? method(name, found) : Value();
}

// An element of a sequence by position, or missing.
Value element(Runtime& rt, const Value& object, std::int64_t index) {
  const std::int64_t size = length(rt, object);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return {};
  switch (object.kind()) {
    case Kind::string: {
      const auto& string = object.as<StringObject>();
      if (!string.ascii) rt.heap.step_bytes(string.text.size());
      const std::size_t from = string.offset(static_cast<std::size_t>(index));
      std::size_t to = from;
      decode_at(string.text, to);
      return substring(rt, string, from, to);
    }
    case Kind::list:
    case Kind::tuple: return object.as<SequenceObject>().items[static_cast<std::size_t>(index)];
    case Kind::range: return Value::integer(object.as<RangeObject>().at(index));
    default: return {};
  }
}

// object[key] without Jinja's fallbacks; missing where Python raises TypeError or LookupError.
Value subscript(Runtime& rt, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::dict: {
      if (key.is(Kind::list) || key.is(Kind::dict)) return {};
      const Value* value = object.as<DictObject>().find(rt, key);
      return value != nullptr ? *value : Value();
    }
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::range: return key.is_small_int() ? element(rt, object, key.as_integer()) : Value();
    case Kind::undefined: raise_undefined(rt, object);
    default: return {};
  }
}

// The attribute that the sandbox hands out: the object's own, or missing, or an undefined value for what it refuses.
// Python's objects have double-underscore attributes by the dozen; templates get none of them.
Value safe_attribute(Runtime& rt, const Value& object, std::string_view name) {
  const bool hidden = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (hidden || is_mutating_method(object.kind(), name)) return make_unsafe(rt, object, name);
  Value value = own_attribute(rt, object, name);
  return !value.is_missing() && name.starts_with('_') ? make_unsafe(rt, object, name) : value;
}

}  // namespace

Value get_own_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is_undefined()) raise_undefined(rt, object);
  Value value = safe_attribute(rt, object, name);
  return value.is_missing() ? make_undefined(rt, object, make_string(rt, name, Origin::literal)) : value;
}

Value get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is(Kind::dict)) {
    if (Value value = safe_attribute(rt, object, name); !value.is_missing()) return value;
    if (const Value* value = object.as<DictObject>().find(name)) return *value;
  }
  return get_own_attribute(rt, object, name);
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  if (Value value = subscript(rt, object, key); !value.is_missing()) return value;
  if (key.is_string())
    if (Value value = safe_attribute(rt, object, key.as<StringObject>().text); !value.is_missing()) return value;
  return make_undefined(rt, object, key);
}

namespace {

struct Bounds {
  std::int64_t start;
  std::int64_t stop;
  std::int64_t step;
  std::int64_t count;
};

// slice(start, stop, step).indices(size), and how many there are.
Bounds slice_bounds(const Value& start, const Value& stop, const Value& step, std::int64_t size) {
  const auto index = [](const Value& v, std::int64_t otherwise) {
    if (v.is_none()) return otherwise;
    if (v.is(Kind::big)) return v.as<BigObject>().value.is_negative() ? INT64_MIN / 4 : INT64_MAX / 4;
    if (!v.is_small_int()) raise_type_error("slice indices must be integers or None or have an __index__ method");
    return std::clamp<std::int64_t>(v.as_integer(), INT64_MIN / 4, INT64_MAX / 4);
  };
  const std::int64_t by = index(step, 1);
  if (by == 0) raise_value_error("slice step cannot be zero");
  const auto clip = [&](std::int64_t i) {
    if (i < 0) i += size;
    return by > 0 ? std::clamp<std::int64_t>(i, 0, size) : std::clamp<std::int64_t>(i, -1, size - 1);
  };
  const std::int64_t from = start.is_none() ? (by > 0 ? 0 : size - 1) : clip(index(start, 0));
  const std::int64_t to = stop.is_none() ? (by > 0 ? size : -1) : clip(index(stop, 0));
  const std::int64_t distance = by > 0 ? to - from : from - to;
  const std::int64_t stride = by > 0 ? by : -by;
  return {from, to, by, distance <= 0 ? 0 : (distance - 1) / stride + 1};
}

Value slice_string(Runtime& rt, const StringObject& string, const Bounds& bounds) {
  if (bounds.step == 1) {
    if (!string.ascii) rt.heap.step_bytes(string.text.size());
    const std::size_t from = string.offset(static_cast<std::size_t>(bounds.start));
    const std::size_t to = string.ascii ? from + static_cast<std::size_t>(bounds.count)
                                        : string.offset(static_cast<std::size_t>(bounds.start + bounds.count));
    return substring(rt, string, from, to);
  }
  std::vector<std::size_t> starts;  // of the code points, and the end
  rt.heap.step(string.length);
  rt.heap.charge(string.length * sizeof(std::size_t));
  starts.reserve(string.length + 1);
  for (std::size_t at = 0; at < string.text.size(); decode_at(string.text, at)) starts.push_back(at);
  starts.push_back(string.text.size());
  TextBuilder out(rt);
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const auto at = static_cast<std::size_t>(bounds.start + i * bounds.step);
    out.append(string, starts[at], starts[at + 1]);
  }
  rt.heap.refund(string.length * sizeof(std::size_t));
  return out.finish(string.markup);
}

}  // namespace

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  switch (object.kind()) {
    case Kind::undefined: raise_undefined(rt, object);
    case Kind::string:
      return slice_string(rt, object.as<StringObject>(), slice_bounds(start, stop, step, length(rt, object)));
    case Kind::list:
    case Kind::tuple: {
      const Bounds bounds = slice_bounds(start, stop, step, length(rt, object));
      const Value out(rt.heap.make<SequenceObject>(object.kind()));
      for (std::int64_t i = 0; i < bounds.count; ++i)
        out.as<SequenceObject>().append(
            object.as<SequenceObject>().items[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
      return out;
    }
    case Kind::range: {
      const auto& range = object.as<RangeObject>();
      const Bounds bounds = slice_bounds(start, stop, step, range.length);
      std::int64_t step_by = 0;
      if (__builtin_mul_overflow(range.step, bounds.step, &step_by)) raise("OverflowError", "range step is too large");
      return rt.heap.make<RangeObject>(range.at(bounds.start), range.at(bounds.stop), step_by, bounds.count);
    }
    case Kind::dict: raise_type_error("unhashable type: 'slice'");
    default: raise_type_error(fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
}

}  // namespace adze::text::jinja
