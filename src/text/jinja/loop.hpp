// The `loop` variable of a for statement.
#pragma once

#include "text/jinja/value.hpp"

namespace adze::text::jinja {

struct ForStatement;
struct FrameObject;

// Pulls values from an iterator and looks at most one ahead, and only when asked to (loop.last, loop.nextitem).
struct LoopObject : Object {
  LoopObject(Value over, Value iter, int depth)
      : Object(Kind::loop), iterable(std::move(over)), iterator(std::move(iter)), depth0(depth) {}
  void drop() override { iterable = iterator = current = before = after = last_changed = outer = Value(); }

  // Moves to the next item, in `current`.
  bool advance(Runtime& rt);
  std::int64_t length(Runtime& rt);
  // The next item, or missing at the end.
  const Value& peek(Runtime& rt);
  // loop.index and so on; missing when there is no such field.
  Value field(Runtime& rt, std::string_view name);
  bool changed(Runtime& rt, Value values);

  Value iterable;
  Value iterator;
  Value current;
  Value before;
  Value after;
  Value last_changed;
  std::int64_t index0 = -1;
  std::int64_t known_length = -1;
  bool exhausted = false;
  int depth0 = 0;
  // Of a recursive loop: what to run again, and the scope around it.
  const ForStatement* recursive = nullptr;
  Value outer;
};

// list(loop): (item, loop) pairs of the rest of the loop.
struct LoopIterator : IteratorObject {
  explicit LoopIterator(Value l) : IteratorObject("LoopContext"), loop(std::move(l)) {}
  void drop() override { loop = Value(); }
  bool next(Runtime& rt, Value& out) override;
  Value loop;
};

}  // namespace adze::text::jinja
