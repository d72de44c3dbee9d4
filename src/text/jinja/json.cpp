// tojson: json.dumps with the arguments that transformers passes on.
#include <algorithm>
#include <cmath>

#include "text/jinja/runtime.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const Arguments& options) : rt_(rt), out_(rt) {
    const Bound bound("tojson", options, {"ensure_ascii", "indent", "separators", "sort_keys"});
    ensure_ascii_ = bound.flag(rt, 0, false);
    sort_keys_ = bound.flag(rt, 3, false);
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      pretty_ = true;
      item_separator_.pop_back();  // no space before a line break
      if (bound[1]->is_string())
        indent_ = bound[1]->as<StringObject>().text;
      else
        indent_ = std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(bound.integer(1, 0), 0, 1000)), ' ');
    }
    if (bound[2] != nullptr && !bound[2]->is_none()) {
      const Value pair = as_sequence(rt, *bound[2]);
      const std::vector<Value>& both = items_of(pair);
      if (both.size() != 2) raise_value_error("separators must be a pair");
      item_separator_ = expect_string(both[0], "separator").text;
      key_separator_ = expect_string(both[1], "separator").text;
    }
  }

  Value run(const Value& value) {
    write(value, 0);
    return out_.finish();
  }

 private:
  void put(std::string_view text) { out_.append(text, Origin::data); }

  void newline(std::size_t level) {
    if (!pretty_) return;
    put("\n");
    for (std::size_t i = 0; i < level; ++i) put(indent_);
  }

  void write(const Value& value, std::size_t level) {
    const Depth depth(rt_.heap);
    rt_.heap.step();
    switch (value.kind()) {
      case Kind::none: put("null"); return;
      case Kind::boolean: put(value.as_boolean() ? "true" : "false"); return;
      case Kind::integer:
      case Kind::big: append_str(rt_, out_, value); return;
      case Kind::real: put(real(value.as_real())); return;
      case Kind::string: write_string(value.as<StringObject>()); return;
      case Kind::list:
      case Kind::tuple: write_sequence(value.as<SequenceObject>().items, level); return;
      case Kind::dict: write_dict(value.as<DictObject>(), level); return;
      default: raise_type_error(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

  static std::string real(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return float_repr(d);
  }

  void write_sequence(const std::vector<Value>& items, std::size_t level) {
    if (items.empty()) {
      put("[]");
      return;
    }
    put("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(item_separator_);
      newline(level + 1);
      write(items[i], level + 1);
    }
    newline(level);
    put("]");
  }

  void write_dict(const DictObject& dict, std::size_t level) {
    if (dict.entries.empty()) {
      put("{}");
      return;
    }
    if (!sort_keys_) {
      write_entries(dict.entries, level);
      return;
    }
    const Loan loan(rt_.heap, 2 * sizeof(dict.entries[0]) * dict.entries.size());
    std::vector<std::pair<Value, Value>> entries = dict.entries;
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const auto& a, const auto& b) { return ordered(rt_, a.first, Order::less, b.first); });
    write_entries(entries, level);
  }

  void write_entries(const std::vector<std::pair<Value, Value>>& entries, std::size_t level) {
    put("{");
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!first) put(item_separator_);
      first = false;
      newline(level + 1);
      write_key(key);
      put(key_separator_);
      write(value, level + 1);
    }
    newline(level);
    put("}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) {
      write_string(key.as<StringObject>());
      return;
    }
    if (!key.is_number() && !key.is_none())
      raise_type_error(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    put("\"");
    write(key, 0);
    put("\"");
  }

  void write_string(const StringObject& string) {
    const Origin around = overall_origin(string);
    OriginCursor cursor(string);
    const std::string_view text = string.text;
    out_.append("\"", around);
    std::size_t from = 0;
    rt_.heap.step_bytes(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      const auto byte = static_cast<unsigned char>(text[at]);
      std::string escape;
      if (byte >= 0x80) {
        if (!ensure_ascii_) {
          ++at;
          continue;
        }
        auto code = static_cast<std::uint32_t>(decode_at(text, at));
        if (code >= 0x10000) {
          code -= 0x10000;
          escape = fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
        } else {
          escape = fmt::format("\\u{:04x}", code);
        }
      } else {
        ++at;
        switch (byte) {
          case '"': escape = "\\\""; break;
          case '\\': escape = "\\\\"; break;
          case '\n': escape = "\\n"; break;
          case '\r': escape = "\\r"; break;
          case '\t': escape = "\\t"; break;
          case '\b': escape = "\\b"; break;
          case '\f': escape = "\\f"; break;
          default:
            if (byte >= 0x20) continue;
            escape = fmt::format("\\u{:04x}", byte);
        }
      }
      out_.append(string, from, begin);
      out_.append(escape, cursor.at(begin));
      from = at;
    }
    out_.append(string, from, text.size());
    out_.append("\"", around);
  }

  Runtime& rt_;
  TextBuilder out_;
  std::string item_separator_ = ", ";
  std::string key_separator_ = ": ";
  std::string indent_;
  bool pretty_ = false;
  bool ensure_ascii_ = false;
  bool sort_keys_ = false;
};

}  // namespace

Value to_json(Runtime& rt, const Value& value, const Arguments& options) { return JsonWriter(rt, options).run(value); }

}  // namespace adze::text::jinja
