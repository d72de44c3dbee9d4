// Methods of list, tuple, dict and the numbers, and the table of what the sandbox forbids.
#include <algorithm>
#include <cmath>

#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {

namespace {

// --- dict
// ------------------------------------------------------------------------------------------------------------------

Value dict_view(Runtime& rt, const Value& self, const Arguments& arguments, std::string_view name, ViewOf what) {
  const Bound none(name, arguments, {});
  return rt.heap.make<ViewObject>(self, what);
}

Value dict_keys(Runtime& rt, const Value& self, const Arguments& a) {
  return dict_view(rt, self, a, "keys", ViewOf::keys);
}
Value dict_values(Runtime& rt, const Value& self, const Arguments& a) {
  return dict_view(rt, self, a, "values", ViewOf::values);
}
Value dict_items(Runtime& rt, const Value& self, const Arguments& a) {
  return dict_view(rt, self, a, "items", ViewOf::items);
}

Value dict_get(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) raise_type_error("dict.get() takes no keyword arguments");
  const Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.as<DictObject>().find(rt, *bound[0]);
  if (found != nullptr) return *found;
  return bound[1] != nullptr ? *bound[1] : Value::none();
}

Value dict_copy(Runtime& rt, const Value& self, const Arguments&) {
  const Value out(rt.heap.make<DictObject>());
  for (const auto& [key, value] : self.as<DictObject>().entries) out.as<DictObject>().set(rt, key, value);
  return out;
}

// --- list and tuple
// ----------------------------------------------------------------------------------------------------------

Value sequence_count(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  std::int64_t count = 0;
  for (const Value& item : self.as<SequenceObject>().items) count += equal(rt, item, *bound[0]) ? 1 : 0;
  return Value::integer(count);
}

Value sequence_index(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value", "start", "stop"}, 1);
  const auto& items = self.as<SequenceObject>().items;
  const auto size = static_cast<std::int64_t>(items.size());
  const auto clip = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size); };
  const std::int64_t stop = clip(bound.integer(2, size));
  for (std::int64_t i = clip(bound.integer(1, 0)); i < stop; ++i)
    if (equal(rt, items[static_cast<std::size_t>(i)], *bound[0])) return Value::integer(i);
  raise_value_error(self.is(Kind::list) ? fmt::format("{} is not in list", repr(rt, *bound[0]))
                                        : "tuple.index(x): x not in tuple");
}

Value list_copy(Runtime& rt, const Value& self, const Arguments&) { return to_list(rt, self); }

Value range_count(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  std::int64_t count = 0;
  const Value all = to_list(rt, self);
  for (const Value& item : items_of(all)) count += equal(rt, item, *bound[0]) ? 1 : 0;
  return Value::integer(count);
}

Value range_index(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  std::int64_t at = 0;
  const Value all = to_list(rt, self);
  for (const Value& item : items_of(all)) {
    if (equal(rt, item, *bound[0])) return Value::integer(at);
    ++at;
  }
  raise_value_error(fmt::format("{} is not in range", repr(rt, *bound[0])));
}

// --- numbers
// -----------------------------------------------------------------------------------------------------------------

Value int_bit_length(Runtime&, const Value& self, const Arguments&) {
  const BigInt value = to_big(self);
  if (value.is_zero()) return Value::integer(0);
  const std::string bits = value.to_string(2);
  return Value::integer(static_cast<std::int64_t>(bits.size()) - (value.is_negative() ? 1 : 0));
}

Value int_bit_count(Runtime&, const Value& self, const Arguments&) {
  const std::string bits = to_big(self).to_string(2);
  return Value::integer(std::count(bits.begin(), bits.end(), '1'));
}

Value int_is_integer(Runtime&, const Value&, const Arguments&) { return Value::boolean(true); }
Value number_conjugate(Runtime& rt, const Value& self, const Arguments&) { return plus(rt, self); }

Value float_is_integer(Runtime&, const Value& self, const Arguments&) {
  return Value::boolean(std::isfinite(self.as_real()) && std::floor(self.as_real()) == self.as_real());
}

struct Entry {
  std::string_view name;
  Method method;
};

constexpr Entry kDict[] = {
    {"keys", dict_keys}, {"values", dict_values}, {"items", dict_items}, {"get", dict_get}, {"copy", dict_copy}};
constexpr Entry kList[] = {{"count", sequence_count}, {"index", sequence_index}, {"copy", list_copy}};
constexpr Entry kTuple[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr Entry kRange[] = {{"count", range_count}, {"index", range_index}};
constexpr Entry kInt[] = {{"bit_length", int_bit_length},
                          {"bit_count", int_bit_count},
                          {"conjugate", number_conjugate},
                          {"is_integer", int_is_integer}};
constexpr Entry kFloat[] = {{"is_integer", float_is_integer}, {"conjugate", number_conjugate}};

template <std::size_t N>
Method find_in(const Entry (&entries)[N], std::string_view name) {
  for (const Entry& entry : entries)
    if (entry.name == name) return entry.method;
  return nullptr;
}

}  // namespace

Method find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::string: return find_string_method(name);
    case Kind::dict: return find_in(kDict, name);
    case Kind::list: return find_in(kList, name);
    case Kind::tuple: return find_in(kTuple, name);
    case Kind::range: return find_in(kRange, name);
    case Kind::boolean:
    case Kind::integer:
    case Kind::big: return find_in(kInt, name);
    case Kind::real: return find_in(kFloat, name);
    default: return nullptr;
  }
}

bool is_mutating_method(Kind kind, std::string_view name) {
  static constexpr std::string_view kListMutators[] = {"append", "clear", "pop",    "reverse",
                                                       "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (kind == Kind::list && among(kListMutators)) || (kind == Kind::dict && among(kDictMutators));
}

}  // namespace adze::text::jinja
