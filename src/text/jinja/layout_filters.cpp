// Filters that lay text out or write it for the web.
#include <algorithm>

#include "text/jinja/filters.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

const StringObject& str(const Value& v) { return v.as<StringObject>(); }

Value filter_center(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  Arguments padding;
  padding.positional.push_back(Value::integer(bound.integer(0, 80)));
  return find_string_method("center")(rt, to_string(rt, v), padding);
}

Value filter_indent(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (v.is_undefined()) raise_undefined(rt, v);
  if (!v.is_string()) raise_type_error(fmt::format("unsupported operand type(s) for +=: '{}' and 'str'", type_name(v)));
  Value indention;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention = *bound[0];
  } else {
    Value space = make_string(rt, " ", Origin::literal);
    indention = binary(rt, BinaryOp::multiply, space, Value::integer(bound.integer(0, 4)));
  }
  const bool blank = bound.flag(rt, 2, false);
  const Value newline = make_string(rt, "\n", Origin::literal);
  const Value text = binary(rt, BinaryOp::add, v, newline);
  const std::vector<Value> lines = split_lines(rt, str(text), false);
  TextBuilder out(rt);
  if (bound.flag(rt, 1, false)) out.append(str(indention));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.append(str(newline));
      if (blank || !str(lines[i]).text.empty()) out.append(str(indention));
    }
    out.append(str(lines[i]));
  }
  return out.finish(str(v).markup);
}

Value filter_truncate(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Value end = bound[2] != nullptr ? to_string(rt, *bound[2]) : make_string(rt, "...", Origin::literal);
  const std::int64_t limit = bound.integer(0, 255);
  const std::int64_t leeway = bound[3] != nullptr && !bound[3]->is_none() ? bound.integer(3, 5) : 5;
  const auto end_length = static_cast<std::int64_t>(str(end).length);
  if (limit < end_length) raise("AssertionError", fmt::format("expected length >= {}, got {}", end_length, limit));
  if (leeway < 0) raise("AssertionError", fmt::format("expected leeway >= 0, got {}", leeway));
  if (length(rt, v) <= limit + leeway) return v;
  const Value cut = get_slice(rt, v, Value::none(), Value::integer(limit - end_length), Value::none());
  const auto& head = expect_string(cut, "truncated value");
  std::size_t keep = head.text.size();
  if (!bound.flag(rt, 1, false)) {
    const std::size_t space = head.text.rfind(' ');
    if (space != std::string::npos) keep = space;
  }
  return binary(rt, BinaryOp::add, substring(rt, head, 0, keep), end);
}

// --- wordwrap: Python's textwrap, without its splitting at hyphens inside words
// ---------------------------------------------

struct Chunk {
  std::size_t from;
  std::size_t to;
  std::int64_t width;  // code points
  bool space;
};

// Words and the spaces between them, charged to the render twice their size for the vector's growth; with `hyphens`, a
// word may end behind a hyphen between letters.
std::vector<Chunk> chunks_of(Runtime& rt, const StringObject& line, bool hyphens) {
  std::vector<Chunk> out;
  const std::string_view text = line.text;
  const auto blank = [](char32_t c) { return (c >= 9 && c <= 13) || c == ' '; };
  char32_t before = 0;
  char32_t before_that = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const char32_t c = decode_at(text, at);
    const bool after_hyphen = hyphens && before == '-' && is_alpha(before_that) && is_alpha(c);
    const bool fresh = out.empty() || out.back().space != blank(c) || after_hyphen;
    if (fresh) {
      rt.heap.step();
      rt.heap.charge(2 * sizeof(Chunk));
      out.push_back({from, at, 1, blank(c)});
    } else {
      out.back().to = at;
      ++out.back().width;
    }
    before_that = before;
    before = c;
  }
  return out;
}

void wrap_line(Runtime& rt, const StringObject& line, std::int64_t width, bool break_long, bool hyphens,
               std::vector<Value>& out) {
  std::vector<Chunk> chunks = chunks_of(rt, line, hyphens);
  const std::uint64_t charged = 2 * sizeof(Chunk) * chunks.size();
  std::size_t at = 0;
  bool first = true;
  while (at < chunks.size()) {
    if (chunks[at].space && !first) ++at;
    std::int64_t used = 0;
    const std::size_t begin = at;
    std::size_t end = at;
    bool keep_space = false;  // a full line in front of an overlong word keeps its final space
    while (end < chunks.size() && used + chunks[end].width <= width) used += chunks[end++].width;
    if (end < chunks.size() && chunks[end].width > width) {  // longer than any line
      if (break_long) {
        Chunk& chunk = chunks[end];
        const std::int64_t room = width - used;
        if (room > 0) {
          const std::size_t cut =
              chunk.from + byte_offset(std::string_view(line.text).substr(chunk.from, chunk.to - chunk.from),
                                       static_cast<std::size_t>(room));
          const Chunk head{chunk.from, cut, room, false};
          chunk.from = cut;
          chunk.width -= room;
          chunks.insert(chunks.begin() + static_cast<std::ptrdiff_t>(end), head);
          rt.heap.step(chunks.size() / 64 + 1);
          ++end;
        } else {
          keep_space = true;
        }
      } else if (end == begin) {
        ++end;
      }
    }
    std::size_t last = end;
    if (last > begin && chunks[last - 1].space && !keep_space) --last;
    if (last > begin) {
      out.push_back(substring(rt, line, chunks[begin].from, chunks[last - 1].to));
      first = false;
    }
    if (end == at) break;  // nothing fits: width is not positive
    at = end;
  }
  rt.heap.refund(charged);
}

Value filter_wordwrap(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const auto& text = expect_string(v, "wordwrap value");
  const std::int64_t width = bound.integer(0, 79);
  if (width <= 0) raise_value_error(fmt::format("invalid width {} (must be > 0)", width));
  const Value newline = bound.string(2) != nullptr ? *bound[2] : make_string(rt, "\n", Origin::literal);
  std::vector<Value> paragraphs;
  for (const Value& line : split_lines(rt, text, false)) {
    std::vector<Value> wrapped;
    wrap_line(rt, str(line), width, bound.flag(rt, 1, true), bound.flag(rt, 3, true), wrapped);
    paragraphs.push_back(join(rt, str(newline), wrapped));
  }
  return join(rt, str(newline), paragraphs);
}

// --- the web
// ------------------------------------------------------------------------------------------------------------------

Value filter_striptags(Runtime& rt, const Value& v, const Arguments&) {
  const Value text = to_string(rt, v);
  const std::string_view s = str(text).text;
  TextBuilder kept(rt);
  std::size_t at = 0;
  rt.heap.step_bytes(s.size());
  while (at < s.size()) {
    const std::size_t tag = s.find('<', at);
    if (tag == std::string_view::npos) break;
    const bool comment = s.substr(tag).starts_with("<!--");
    const std::size_t close = comment ? s.find("-->", tag) : s.find('>', tag);
    if (close == std::string_view::npos) break;
    kept.append(str(text), at, tag);
    at = close + (comment ? 3 : 1);
  }
  kept.append(str(text), at, s.size());
  const Value plain = kept.finish();
  const Value words = find_string_method("split")(rt, plain, {});
  const Value space = make_string(rt, " ", Origin::literal);
  Value out = join(rt, str(space), words.as<SequenceObject>().items);
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&#39;", "'"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) {
    const Value from = make_string(rt, entity, Origin::literal);
    const Value to = make_string(rt, character, overall_origin(str(out)));
    out = replace(rt, str(out), str(from), str(to), -1);
  }
  return out;
}

void append_quoted(TextBuilder& out, const StringObject& text, bool query) {
  OriginCursor cursor(text);
  for (std::size_t at = 0; at < text.text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text.text[at]);
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       byte == '_' || byte == '.' || byte == '-' || byte == '~' || (byte == '/' && !query);
    if (plain)
      out.append(text, at, at + 1);
    else if (byte == ' ' && query)
      out.append("+", cursor.at(at));
    else
      out.append(fmt::format("%{:02X}", byte), cursor.at(at));
  }
}

Value filter_urlencode(Runtime& rt, const Value& v, const Arguments&) {
  TextBuilder out(rt);
  if (v.is_string() || !is_iterable(v)) {
    const Value text = to_string(rt, v);
    append_quoted(out, str(text), false);
    return out.finish();
  }
  const Value pairs = v.is(Kind::dict) ? Value(rt.heap.make<ViewObject>(v, ViewOf::items)) : v;
  bool first = true;
  const Value all = as_sequence(rt, pairs);
  for (const Value& pair : items_of(all)) {
    const Value both = as_sequence(rt, pair);
    const std::vector<Value>& parts = items_of(both);
    if (parts.size() != 2) raise_value_error("urlencode needs a mapping or pairs");
    if (!first) out.append("&", Origin::data);
    first = false;
    for (std::size_t i = 0; i < 2; ++i) {
      if (i > 0) out.append("=", Origin::data);
      const Value text = to_string(rt, parts[i]);
      append_quoted(out, str(text), true);
    }
  }
  return out.finish();
}

Value filter_urlize(Runtime&, const Value&, const Arguments&) {
  raise("SecurityError", "the filter 'urlize' is not available: chat templates write plain text, not HTML");
}

Value filter_xmlattr(Runtime& rt, const Value& v, const Arguments& arguments) {
  const Bound bound("xmlattr", arguments, {"autospace"});
  if (v.is_undefined()) raise_undefined(rt, v);
  if (!v.is(Kind::dict)) raise("AttributeError", fmt::format("'{}' object has no attribute 'items'", type_name(v)));
  TextBuilder out(rt);
  for (const auto& [key, value] : v.as<DictObject>().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    const auto& name = expect_string(key, "attribute name");
    if (name.text.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      raise_value_error(fmt::format("Invalid character in attribute name: {}", repr(rt, key)));
    if (out.size() > 0 || bound.flag(rt, 0, true)) out.append(" ", Origin::literal);
    const Value shown_name = escape(rt, name);
    const Value text = to_string(rt, value);
    const Value shown = escape(rt, str(text));
    out.append(str(shown_name));
    out.append("=\"", Origin::literal);
    out.append(str(shown));
    out.append("\"", Origin::literal);
  }
  return out.finish();
}

constexpr FilterEntry kFilters[] = {{"center", filter_center},       {"indent", filter_indent},
                                    {"striptags", filter_striptags}, {"truncate", filter_truncate},
                                    {"urlencode", filter_urlencode}, {"urlize", filter_urlize},
                                    {"wordwrap", filter_wordwrap},   {"xmlattr", filter_xmlattr}};

}  // namespace

std::span<const FilterEntry> layout_filters() { return kFilters; }

}  // namespace adze::text::jinja
