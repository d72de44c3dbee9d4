// The filters, by what they work on. Each table is searched by find_filter.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {

struct FilterEntry {
  std::string_view name;
  Filter filter;
};
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> layout_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> select_filters();

// Jinja's attribute paths: "a.b.0" as keys to look up one after the other; none: the item itself.
class AttributePath {
 public:
  AttributePath(Runtime& rt, const Value* attribute, const Value* otherwise = nullptr);
  Value operator()(Runtime& rt, const Value& item) const;

 private:
  std::vector<Value> keys_;
  Value otherwise_;  // instead of undefined; missing: none
};

// The item of a comparison that ignores case: strings in lower case.
Value ignore_case(Runtime& rt, const Value& value);

// A generator that calls `next` until it says false. Values that `next` holds live as long as the generator.
Value make_generator(Runtime& rt, std::function<bool(Runtime&, Value&)> next);

[[noreturn]] inline void raise_filter_argument(std::string message) {
  raise("FilterArgumentError", std::move(message));
}

}  // namespace adze::text::jinja
