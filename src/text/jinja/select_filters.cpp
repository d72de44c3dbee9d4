// map, select, reject and their attribute forms: filters that apply other filters and tests, one item at a time.
#include <memory>

#include "text/jinja/filters.hpp"

namespace adze::text::jinja {
namespace {

// These are generators in Jinja: nothing is checked or computed before the first item is asked for.
Value filter_map(Runtime& rt, const Value& v, const Arguments& arguments) {
  return make_generator(rt, [source = v, arguments, items = Value(), path = std::shared_ptr<AttributePath>(),
                             rest = Arguments(), name = std::string()](Runtime& r, Value& out) mutable {
    if (items.is_missing()) {
      if (!truthy(r, source)) return false;
      const Value* attribute = nullptr;
      const Value* otherwise = nullptr;
      for (const auto& [key, value] : arguments.named) {
        if (key == "attribute") attribute = &value;
        if (key == "default") otherwise = &value;
      }
      if (arguments.positional.empty() && attribute != nullptr) {
        for (const auto& [key, value] : arguments.named)
          if (key != "attribute" && key != "default")
            raise_filter_argument(fmt::format("Unexpected keyword argument '{}'", key));
        path = std::make_shared<AttributePath>(r, attribute, otherwise);
      } else if (arguments.positional.empty()) {
        raise_filter_argument("map requires a filter argument");
      } else {
        name = expect_string(arguments.positional[0], "filter name").text;
        rest = arguments;
        rest.positional.erase(rest.positional.begin());
      }
      items = iterate(r, source);
    }
    Value item;
    if (!items.as<IteratorObject>().next(r, item)) return false;
    out = path ? (*path)(r, item) : r.call_filter(name, item, rest);
    return true;
  });
}

Value select(Runtime& rt, const Value& v, const Arguments& arguments, bool wanted, bool by_attribute) {
  return make_generator(
      rt, [source = v, arguments, wanted, by_attribute, items = Value(), path = std::shared_ptr<AttributePath>(),
           rest = Arguments(), test = std::string()](Runtime& r, Value& out) mutable {
        if (items.is_missing()) {
          if (!truthy(r, source)) return false;
          rest = arguments;
          auto& positional = rest.positional;
          if (by_attribute) {
            if (positional.empty()) raise_filter_argument("Missing parameter for attribute name");
            path = std::make_shared<AttributePath>(r, &positional[0]);
            positional.erase(positional.begin());
          }
          if (!positional.empty()) {
            test = expect_string(positional[0], "test name").text;
            positional.erase(positional.begin());
          }
          items = iterate(r, source);
        }
        while (items.as<IteratorObject>().next(r, out)) {
          const Value subject = path ? (*path)(r, out) : out;
          const bool passed = test.empty() ? truthy(r, subject) : r.call_test(test, subject, rest);
          if (passed == wanted) return true;
        }
        return false;
      });
}

Value filter_select(Runtime& rt, const Value& v, const Arguments& a) { return select(rt, v, a, true, false); }
Value filter_reject(Runtime& rt, const Value& v, const Arguments& a) { return select(rt, v, a, false, false); }
Value filter_selectattr(Runtime& rt, const Value& v, const Arguments& a) { return select(rt, v, a, true, true); }
Value filter_rejectattr(Runtime& rt, const Value& v, const Arguments& a) { return select(rt, v, a, false, true); }

constexpr FilterEntry kFilters[] = {{"map", filter_map},
                                    {"select", filter_select},
                                    {"reject", filter_reject},
                                    {"selectattr", filter_selectattr},
                                    {"rejectattr", filter_rejectattr}};

}  // namespace

std::span<const FilterEntry> select_filters() { return kFilters; }

}  // namespace adze::text::jinja
