// Filters on sequences as a whole.
#include <algorithm>
#include <numeric>

#include "text/jinja/filters.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {

AttributePath::AttributePath(Runtime& rt, const Value* attribute, const Value* otherwise) {
  if (otherwise != nullptr && !otherwise->is_none()) otherwise_ = *otherwise;
  if (attribute == nullptr || attribute->is_none()) return;
  if (!attribute->is_string()) {
    keys_.push_back(*attribute);
    return;
  }
  const std::string& path = attribute->as<StringObject>().text;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, dot - at);
    Value number;
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos &&
        parse_integer(rt, part, 10, number))
      keys_.push_back(number);
    else
      keys_.push_back(make_string(rt, part, Origin::literal));
    at = dot + 1;
  }
}

Value AttributePath::operator()(Runtime& rt, const Value& item) const {
  rt.heap.step();
  Value value = item;
  for (const Value& key : keys_) {
    value = get_item(rt, value, key);
    if (value.is_undefined() && !otherwise_.is_missing()) value = otherwise_;
  }
  return value;
}

Value ignore_case(Runtime& rt, const Value& value) {
  return value.is_string() ? lower(rt, value.as<StringObject>()) : value;
}

namespace {

struct GeneratorObject : IteratorObject {
  explicit GeneratorObject(std::function<bool(Runtime&, Value&)> n) : IteratorObject("generator"), step(std::move(n)) {}
  void drop() override { step = nullptr; }
  bool next(Runtime& rt, Value& out) override {
    rt.heap.step();
    return step(rt, out);
  }
  std::function<bool(Runtime&, Value&)> step;
};

struct ReverseIterator : IteratorObject {
  explicit ReverseIterator(Value s) : IteratorObject("list_reverseiterator"), sequence(std::move(s)) {}
  void drop() override { sequence = Value(); }
  bool next(Runtime& rt, Value& out) override {
    rt.heap.step();
    const auto& items = sequence.as<SequenceObject>().items;
    if (position >= items.size()) return false;
    out = items[items.size() - ++position];
    return true;
  }
  Value sequence;
  std::size_t position = 0;
};

// A generator over the items of a list.
Value generate(Runtime& rt, const Value& list) {
  return make_generator(rt, [list, at = std::size_t{0}](Runtime&, Value& out) mutable {
    if (at >= items_of(list).size()) return false;
    out = items_of(list)[at++];
    return true;
  });
}

using Key = std::function<Value(const Value&)>;

// sorted(items, key=key, reverse=reverse): stable either way.
Value sorted(Runtime& rt, const Value& items, const Key& key, bool reverse) {
  const Value source = as_sequence(rt, items);
  const Value keys(rt.heap.make<SequenceObject>(Kind::list));
  for (const Value& item : items_of(source)) keys.as<SequenceObject>().append(key(item));
  const Loan loan(rt.heap, 2 * sizeof(std::uint32_t) * items_of(source).size());
  std::vector<std::uint32_t> order(items_of(source).size());
  std::iota(order.begin(), order.end(), 0u);
  if (reverse) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return ordered(rt, items_of(keys)[a], Order::less, items_of(keys)[b]);
  });
  if (reverse) std::reverse(order.begin(), order.end());
  Value out(rt.heap.make<SequenceObject>(Kind::list));
  for (const std::uint32_t at : order) out.as<SequenceObject>().append(items_of(source)[at]);
  return out;
}

Value filter_length(Runtime& rt, const Value& v, const Arguments&) { return Value::integer(length(rt, v)); }

Value filter_list(Runtime& rt, const Value& v, const Arguments&) { return to_list(rt, v); }

Value filter_first(Runtime& rt, const Value& v, const Arguments&) {
  const Value iterator = iterate(rt, v);
  Value first;
  if (iterator.as<IteratorObject>().next(rt, first)) return first;
  return make_undefined_hint(rt, "No first item, sequence was empty.");
}

Value filter_last(Runtime& rt, const Value& v, const Arguments&) {
  if (v.is(Kind::iterator) || v.is(Kind::loop) || !is_iterable(v))
    raise_type_error(fmt::format("'{}' object is not reversible", type_name(v)));
  const Value items = as_sequence(rt, v);
  if (items_of(items).empty()) return make_undefined_hint(rt, "No last item, sequence was empty.");
  return items_of(items).back();
}

Value filter_reverse(Runtime& rt, const Value& v, const Arguments&) {
  if (v.is_string()) return get_slice(rt, v, Value::none(), Value::none(), Value::integer(-1));
  if (!is_iterable(v)) raise_filter_argument("argument must be iterable");
  if (!v.is(Kind::iterator) && !v.is(Kind::loop)) return rt.heap.make<ReverseIterator>(as_sequence(rt, v));
  Value items = to_list(rt, v);
  std::reverse(items.as<SequenceObject>().items.begin(), items.as<SequenceObject>().items.end());
  return items;
}

Value filter_join(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const Value separator = bound[0] != nullptr ? to_string(rt, *bound[0]) : make_string(rt, "", Origin::literal);
  const AttributePath path(rt, bound[1]);
  TextBuilder out(rt);
  const Value iterator = iterate(rt, v);
  bool first = true;
  for (Value item; iterator.as<IteratorObject>().next(rt, item);) {
    if (!first) out.append(separator.as<StringObject>());
    first = false;
    append_str(rt, out, path(rt, item));
  }
  return out.finish();
}

Value filter_items(Runtime& rt, const Value& v, const Arguments&) {
  if (v.is_undefined()) return generate(rt, to_list(rt, v));
  if (!v.is(Kind::dict)) raise_type_error("Can only get item pairs from a mapping.");
  return generate(rt, to_list(rt, rt.heap.make<ViewObject>(v, ViewOf::items)));
}

Value filter_dictsort(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] != nullptr ? expect_string(*bound[1], "by").text : "key";
  if (by != "key" && by != "value") raise_filter_argument("You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) raise_undefined(rt, v);
  if (!v.is(Kind::dict)) raise("AttributeError", fmt::format("'{}' object has no attribute 'items'", type_name(v)));
  const bool case_sensitive = bound.flag(rt, 0, false);
  const Key key = [&](const Value& pair) {
    const Value& part = pair.as<SequenceObject>().items[by == "key" ? 0 : 1];
    return case_sensitive ? part : ignore_case(rt, part);
  };
  return sorted(rt, rt.heap.make<ViewObject>(v, ViewOf::items), key, bound.flag(rt, 2, false));
}

Value filter_sort(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(rt, 1, false);
  std::vector<AttributePath> paths;
  if (bound[2] != nullptr && bound[2]->is_string()) {  // several, separated by commas
    const std::string& all = bound[2]->as<StringObject>().text;
    for (std::size_t at = 0; at <= all.size();) {
      const std::size_t comma = std::min(all.find(',', at), all.size());
      const Value one = make_string(rt, all.substr(at, comma - at), Origin::literal);
      paths.emplace_back(rt, &one);
      at = comma + 1;
    }
  } else {
    paths.emplace_back(rt, bound[2]);
  }
  const Key key = [&](const Value& item) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      Value part = path(rt, item);
      keys.push_back(case_sensitive ? part : ignore_case(rt, part));
    }
    return new_list(rt, std::move(keys));
  };
  return sorted(rt, v, key, bound.flag(rt, 0, false));
}

Value filter_unique(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(rt, 0, false);
  const AttributePath path(rt, bound[1]);
  const Value seen(rt.heap.make<DictObject>());
  const Value items = iterate(rt, v);
  return make_generator(rt, [=](Runtime& r, Value& out) {
    for (Value item; items.as<IteratorObject>().next(r, item);) {
      Value key = path(r, item);
      if (!case_sensitive) key = ignore_case(r, key);
      if (seen.as<DictObject>().find(r, key) != nullptr) continue;
      seen.as<DictObject>().set(r, key, Value::none());
      out = item;
      return true;
    }
    return false;
  });
}

Value extreme(Runtime& rt, const Value& v, const Arguments& arguments, std::string_view name, Order better) {
  const Bound bound(name, arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(rt, 0, false);
  const AttributePath path(rt, bound[1]);
  const Value iterator = iterate(rt, v);
  Value best;
  Value best_key;
  for (Value item; iterator.as<IteratorObject>().next(rt, item);) {
    Value key = path(rt, item);
    if (!case_sensitive) key = ignore_case(rt, key);
    if (!best.is_missing() && !ordered(rt, key, better, best_key)) continue;
    best = item;
    best_key = key;
  }
  return best.is_missing() ? make_undefined_hint(rt, "No aggregated item, sequence was empty.") : best;
}

Value filter_min(Runtime& rt, const Value& v, const Arguments& a) { return extreme(rt, v, a, "min", Order::less); }
Value filter_max(Runtime& rt, const Value& v, const Arguments& a) { return extreme(rt, v, a, "max", Order::greater); }

Value filter_sum(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const AttributePath path(rt, bound[0]);
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is_string()) raise_type_error("sum() can't sum strings [use ''.join(seq) instead]");
  const Value iterator = iterate(rt, v);
  for (Value item; iterator.as<IteratorObject>().next(rt, item);)
    total = binary(rt, BinaryOp::add, total, path(rt, item));
  return total;
}

Value filter_batch(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0, 1);
  const Value lines(rt.heap.make<SequenceObject>(Kind::list));
  const Value items = iterate(rt, v);
  Value line;
  for (Value item; items.as<IteratorObject>().next(rt, item);) {
    if (line.is_missing() || length(rt, line) == size) {
      line = rt.heap.make<SequenceObject>(Kind::list);
      lines.as<SequenceObject>().append(line);
    }
    line.as<SequenceObject>().append(item);
  }
  if (!line.is_missing() && bound[1] != nullptr && !bound[1]->is_none())
    while (length(rt, line) < size) line.as<SequenceObject>().append(*bound[1]);
  return generate(rt, lines);
}

Value filter_slice(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const Value sequence = as_sequence(rt, v);
  const std::vector<Value>& items = items_of(sequence);
  const std::int64_t slices = bound.integer(0, 1);
  if (slices == 0) raise("ZeroDivisionError", "integer division or modulo by zero");
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t each = size / slices;
  const std::int64_t extra = size % slices;
  const Value out(rt.heap.make<SequenceObject>(Kind::list));
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const Value slice(rt.heap.make<SequenceObject>(Kind::list));
    for (std::int64_t k = 0; k < each + (i < extra ? 1 : 0); ++k)
      slice.as<SequenceObject>().append(items[static_cast<std::size_t>(at++)]);
    if (bound[1] != nullptr && !bound[1]->is_none() && i >= extra) slice.as<SequenceObject>().append(*bound[1]);
    out.as<SequenceObject>().append(slice);
  }
  return generate(rt, out);
}

Value filter_groupby(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(rt, bound[0], bound[1]);
  const bool case_sensitive = bound.flag(rt, 2, false);
  const Key key = [&](const Value& item) {
    const Value part = path(rt, item);
    return case_sensitive ? part : ignore_case(rt, part);
  };
  Value groups(rt.heap.make<SequenceObject>(Kind::list));
  Value group_key;
  Value members;
  const Value items = sorted(rt, v, key, false);
  for (const Value& item : items_of(items)) {
    const Value k = key(item);
    if (members.is_missing() || !equal(rt, k, group_key)) {
      members = rt.heap.make<SequenceObject>(Kind::list);
      const Value group = new_tuple(rt, {case_sensitive ? k : path(rt, item), members});
      group.as<SequenceObject>().is_group = true;
      groups.as<SequenceObject>().append(group);
      group_key = k;
    }
    members.as<SequenceObject>().append(item);
  }
  return groups;
}

Value filter_random(Runtime&, const Value&, const Arguments&) {
  raise("SecurityError", "the filter 'random' is not available: a chat template renders the same text every time");
}

constexpr FilterEntry kFilters[] = {
    {"batch", filter_batch},     {"count", filter_length},    {"dictsort", filter_dictsort}, {"first", filter_first},
    {"groupby", filter_groupby}, {"items", filter_items},     {"join", filter_join},         {"last", filter_last},
    {"length", filter_length},   {"list", filter_list},       {"max", filter_max},           {"min", filter_min},
    {"random", filter_random},   {"reverse", filter_reverse}, {"slice", filter_slice},       {"sort", filter_sort},
    {"sum", filter_sum},         {"unique", filter_unique},
};

}  // namespace

Value make_generator(Runtime& rt, std::function<bool(Runtime&, Value&)> next) {
  return rt.heap.make<GeneratorObject>(std::move(next));
}

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace adze::text::jinja
