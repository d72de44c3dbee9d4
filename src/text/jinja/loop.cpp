#include "text/jinja/loop.hpp"

#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {

bool LoopObject::advance(Runtime& rt) {
  Value item;
  if (!after.is_missing()) {
    item = std::move(after);
    after = Value();
  } else if (exhausted || !iterator.as<IteratorObject>().next(rt, item)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = std::move(item);
  return true;
}

const Value& LoopObject::peek(Runtime& rt) {
  if (after.is_missing() && !exhausted) {
    Value item;
    if (iterator.as<IteratorObject>().next(rt, item))
      after = std::move(item);
    else
      exhausted = true;
  }
  return after;
}

std::int64_t LoopObject::length(Runtime& rt) {
  if (known_length >= 0) return known_length;
  if (has_length(iterable)) {
    known_length = jinja::length(rt, iterable);
  } else {
    const Value rest = to_list(rt, iterator);
    known_length = jinja::length(rt, rest) + index0 + 1 + (after.is_missing() ? 0 : 1);
    iterator = iterate(rt, rest);
  }
  return known_length;
}

Value LoopObject::field(Runtime& rt, std::string_view name) {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(peek(rt).is_missing());
  if (name == "length") return Value::integer(length(rt));
  if (name == "revindex") return Value::integer(length(rt) - index0);
  if (name == "revindex0") return Value::integer(length(rt) - index0 - 1);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "previtem") return index0 == 0 ? make_undefined_hint(rt, "there is no previous item") : before;
  if (name == "nextitem") {
    const Value& following = peek(rt);
    return following.is_missing() ? make_undefined_hint(rt, "there is no next item") : following;
  }
  return {};
}

bool LoopObject::changed(Runtime& rt, Value values) {
  if (!last_changed.is_missing() && equal(rt, last_changed, values)) return false;
  last_changed = std::move(values);
  return true;
}

bool LoopIterator::next(Runtime& rt, Value& out) {
  auto& l = loop.as<LoopObject>();
  if (!l.advance(rt)) return false;
  out = new_tuple(rt, {l.current, loop});
  return true;
}

}  // namespace adze::text::jinja
