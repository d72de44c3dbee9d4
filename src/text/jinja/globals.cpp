// Functions that templates find without being given them.
#include <cmath>

#include "base/limits.hpp"
#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {
namespace {

Value make_range(Runtime& rt, const Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const auto integer = [&](std::size_t i) -> std::int64_t {
    if (!bound[i]->is_small_int())
      raise_type_error(fmt::format("'{}' object cannot be interpreted as an integer", type_name(*bound[i])));
    return bound[i]->as_integer();
  };
  const std::int64_t start = bound[1] == nullptr ? 0 : integer(0);
  const std::int64_t stop = bound[1] == nullptr ? integer(0) : integer(1);
  const std::int64_t step = bound[2] == nullptr ? 1 : integer(2);
  if (step == 0) raise_value_error("range() arg 3 must not be zero");
  const double span = step > 0 ? static_cast<double>(stop) - static_cast<double>(start)
                               : static_cast<double>(start) - static_cast<double>(stop);
  const double count = span <= 0 ? 0 : std::ceil(span / std::fabs(static_cast<double>(step)));
  if (count > static_cast<double>(limits::kTemplateMaxRange))
    raise("OverflowError", fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                                       limits::kTemplateMaxRange));
  return rt.heap.make<RangeObject>(start, stop, step, static_cast<std::int64_t>(count));
}

// What dict() and namespace() have in common: a mapping or pairs, then keywords.
void fill(Runtime& rt, DictObject& dict, const Arguments& arguments, std::string_view function) {
  if (arguments.positional.size() > 1)
    raise_type_error(fmt::format("{} expected at most 1 argument, got {}", function, arguments.positional.size()));
  for (const Value& from : arguments.positional) {
    if (from.is(Kind::dict)) {
      for (const auto& [key, value] : from.as<DictObject>().entries) dict.set(rt, key, value);
      continue;
    }
    const Value pairs = as_sequence(rt, from);
    for (const Value& pair : items_of(pairs)) {
      const Value both = as_sequence(rt, pair);
      const std::vector<Value>& parts = items_of(both);
      if (parts.size() != 2)
        raise_value_error(fmt::format("dictionary update sequence element has length {}; 2 is required", parts.size()));
      dict.set(rt, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(rt, make_string(rt, name, Origin::literal), value);
}

Value make_dict(Runtime& rt, const Arguments& arguments) {
  const Value dict(rt.heap.make<DictObject>());
  fill(rt, dict.as<DictObject>(), arguments, "dict");
  return dict;
}

Value make_namespace(Runtime& rt, const Arguments& arguments) {
  const Value space(rt.heap.make<NamespaceObject>());
  fill(rt, space.as<NamespaceObject>(), arguments, "dict");
  return space;
}

Value make_cycler(Runtime& rt, const Arguments& arguments) {
  if (!arguments.named.empty()) raise_type_error("Cycler() takes no keyword arguments");
  if (arguments.positional.empty()) raise("RuntimeError", "at least one item has to be provided");
  auto* cycler = rt.heap.make<CyclerObject>();
  const Value value(cycler);
  cycler->items = arguments.positional;
  return value;
}

Value make_joiner(Runtime& rt, const Arguments& arguments) {
  const Bound bound("Joiner", arguments, {"sep"});
  return rt.heap.make<JoinerObject>(bound[0] != nullptr ? *bound[0] : make_string(rt, ", ", Origin::literal));
}

Value raise_exception(Runtime& rt, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  raise("TemplateError", to_string(rt, *bound[0]).as<StringObject>().text);
}

Value strftime_now(Runtime& rt, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const auto& format = expect_string(*bound[0], "strftime() argument 1");
  return make_string(rt, format_time(*rt.now, format.text), overall_origin(format));
}

Value lipsum(Runtime&, const Arguments&) {
  raise("SecurityError", "lipsum() is not available: a chat template renders the same text every time");
}

struct Entry {
  std::string_view name;
  Function function;
};
constexpr Entry kGlobals[] = {
    {"range", make_range},   {"dict", make_dict}, {"namespace", make_namespace},        {"cycler", make_cycler},
    {"joiner", make_joiner}, {"lipsum", lipsum},  {"raise_exception", raise_exception}, {"strftime_now", strftime_now}};

}  // namespace

Function find_global(std::string_view name) {
  for (const Entry& entry : kGlobals)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace adze::text::jinja
