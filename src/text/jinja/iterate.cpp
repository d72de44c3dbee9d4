// Iterating and measuring values.
#include "text/jinja/loop.hpp"
#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

struct ListIterator : IteratorObject {
  explicit ListIterator(Value s)
      : IteratorObject(s.is(Kind::list) ? "list_iterator" : "tuple_iterator"), sequence(std::move(s)) {}
  void drop() override { sequence = Value(); }
  bool next(Runtime& rt, Value& out) override {
    rt.heap.step();
    const auto& items = sequence.as<SequenceObject>().items;
    if (position >= items.size()) return false;
    out = items[position++];
    return true;
  }
  Value sequence;
  std::size_t position = 0;
};

struct StringIterator : IteratorObject {
  explicit StringIterator(Value s) : IteratorObject("str_ascii_iterator"), string(std::move(s)) {}
  void drop() override { string = Value(); }
  bool next(Runtime& rt, Value& out) override {
    const auto& s = string.as<StringObject>();
    if (position >= s.text.size()) return false;
    const std::size_t begin = position;
    decode_at(s.text, position);
    out = substring(rt, s, begin, position);
    out.as<StringObject>().markup = false;
    return true;
  }
  Value string;
  std::size_t position = 0;
};

struct DictIterator : IteratorObject {
  DictIterator(Value d, ViewOf w) : IteratorObject("dict_iterator"), dict(std::move(d)), what(w) {}
  void drop() override { dict = Value(); }
  bool next(Runtime& rt, Value& out) override {
    rt.heap.step();
    const auto& entries = dict.as<DictObject>().entries;
    if (position >= entries.size()) return false;
    const auto& [key, value] = entries[position++];
    switch (what) {
      case ViewOf::keys: out = key; break;
      case ViewOf::values: out = value; break;
      case ViewOf::items: out = new_tuple(rt, {key, value}); break;
    }
    return true;
  }
  Value dict;
  ViewOf what;
  std::size_t position = 0;
};

struct RangeIterator : IteratorObject {
  explicit RangeIterator(Value r) : IteratorObject("range_iterator"), range(std::move(r)) {}
  void drop() override { range = Value(); }
  bool next(Runtime& rt, Value& out) override {
    rt.heap.step();
    const auto& r = range.as<RangeObject>();
    if (position >= r.length) return false;
    out = Value::integer(r.at(position++));
    return true;
  }
  Value range;
  std::int64_t position = 0;
};

struct EmptyIterator : IteratorObject {
  EmptyIterator() : IteratorObject("generator") {}
  bool next(Runtime&, Value&) override { return false; }
};

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::view:
    case Kind::range:
    case Kind::iterator:
    case Kind::loop: return true;
    default: return false;
  }
}

bool has_length(const Value& value) { return is_iterable(value) && !value.is(Kind::iterator); }

std::int64_t length(Runtime& rt, const Value& value) {
  const auto size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return size(value.as<StringObject>().length);
    case Kind::list:
    case Kind::tuple: return size(value.as<SequenceObject>().items.size());
    case Kind::dict: return size(value.as<DictObject>().entries.size());
    case Kind::view: return length(rt, value.as<ViewObject>().dict);
    case Kind::range: return value.as<RangeObject>().length;
    case Kind::loop: return value.as<LoopObject>().length(rt);
    default: raise_type_error(fmt::format("object of type '{}' has no len()", type_name(value)));
  }
}

Value iterate(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return rt.heap.make<EmptyIterator>();
    case Kind::string: return rt.heap.make<StringIterator>(value);
    case Kind::list:
    case Kind::tuple: return rt.heap.make<ListIterator>(value);
    case Kind::dict: return rt.heap.make<DictIterator>(value, ViewOf::keys);
    case Kind::view: {
      const auto& view = value.as<ViewObject>();
      return rt.heap.make<DictIterator>(view.dict, view.what);
    }
    case Kind::range: return rt.heap.make<RangeIterator>(value);
    case Kind::iterator: return value;
    case Kind::loop: return rt.heap.make<LoopIterator>(value);
    default: raise_type_error(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

Value to_list(Runtime& rt, const Value& value) {
  Value list(rt.heap.make<SequenceObject>(Kind::list));
  if (value.is_sequence()) {
    for (const Value& item : items_of(value)) list.as<SequenceObject>().append(item);
    return list;
  }
  const Value iterator = iterate(rt, value);
  for (Value next; iterator.as<IteratorObject>().next(rt, next);) list.as<SequenceObject>().append(std::move(next));
  return list;
}

Value as_sequence(Runtime& rt, const Value& value) { return value.is_sequence() ? value : to_list(rt, value); }

}  // namespace adze::text::jinja
