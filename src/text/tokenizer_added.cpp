#include "text/tokenizer_added.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "text/unicode.hpp"

namespace adze::text {

namespace {

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_white_space(c.value)) break;
    at += c.bytes;
  }
  return at;
}

std::size_t previous(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

std::size_t skip_space_back(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    const std::size_t before = previous(text, at);
    if (!is_white_space(code_point_at(text, before).value)) break;
    at = before;
  }
  return at;
}

// What Rust's \w is, which decides single_word: also letter numbers, joiners and circled letters.
bool is_wide_word(char32_t c) {
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return is_word(c) || category(c) == Category::Nl || c == 0x200C || c == 0x200D || circled;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool touches_left = begin > 0 && is_wide_word(code_point_at(text, previous(text, begin)).value);
  const bool touches_right = end < text.size() && is_wide_word(code_point_at(text, end).value);
  return !touches_left && !touches_right;
}

// Walks along sorted ranges while the questions come in ascending order.
class LiteralCursor {
 public:
  explicit LiteralCursor(std::span<const LiteralRange> ranges) : ranges_(ranges) {}
  // The end of the literal range that holds `at`; `at` when none does.
  std::size_t literal_end(std::size_t at) {
    while (next_ < ranges_.size() && ranges_[next_].end <= at) ++next_;
    return next_ < ranges_.size() && ranges_[next_].begin <= at ? ranges_[next_].end : at;
  }

 private:
  std::span<const LiteralRange> ranges_;
  std::size_t next_ = 0;
};

}  // namespace

bool is_markup(std::string_view token) {
  if (token.size() < 3) return false;
  const bool angled = token.front() == '<' && token.back() == '>';
  const bool bracketed = token.front() == '[' && token.back() == ']';
  if (!angled && !bracketed) return false;
  std::string_view name = token.substr(1, token.size() - 2);
  if (name.starts_with('/')) name.remove_prefix(1);
  if (bracketed) {
    return std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
  }
  constexpr std::array<std::string_view, 8> kNames = {"think", "bos", "eos", "unk", "pad", "mask", "sep", "cls"};
  constexpr std::string_view kWideBar = "\xEF\xBD\x9C";  // U+FF5C
  return name.find_first_of("|_") != std::string_view::npos || name.find(kWideBar) != std::string_view::npos ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Status AddedTokens::create(const TokenizerSpec& spec) {
  special_.assign(spec.tokens.size(), false);
  if (spec.added_tokens) {
    added_ = *spec.added_tokens;
  } else {
    for (std::size_t id = 0; id < spec.types.size(); ++id) {
      const TokenType type = spec.types[id];
      const bool special = type == TokenType::control || type == TokenType::unknown;
      if (!special && type != TokenType::user_defined) continue;
      added_.push_back({.id = static_cast<TokenId>(id), .special = special});
    }
  }
  std::vector<PrefixSet::Entry> raw, normalized;
  for (std::size_t i = 0; i < added_.size(); ++i) {
    const AddedToken& added = added_[i];
    if (added.id < 0 || static_cast<std::size_t>(added.id) >= spec.tokens.size()) {
      return fail(ErrorCode::corrupt_file, fmt::format("added token {} has id {}, but the vocabulary has {} tokens", i,
                                                       added.id, spec.tokens.size()));
    }
    const std::string_view text = spec.tokens[static_cast<std::size_t>(added.id)];
    markup_.push_back(is_markup(text));
    if (added.special) special_[static_cast<std::size_t>(added.id)] = true;
    if (!is_valid_utf8(text)) continue;  // could match inside a character; real text never holds it
    (added.normalized ? normalized : raw).push_back({text, static_cast<TokenId>(i)});
  }
  raw_.build(std::move(raw));
  normalized_.build(std::move(normalized));
  return {};
}

void AddedTokens::split_with(const PrefixSet& set, Mode mode, std::string_view text, std::string_view whole,
                             std::span<const LiteralRange> literals, std::vector<Section>& out) const {
  const auto base = static_cast<std::size_t>(text.data() - whole.data());
  LiteralCursor cursor(literals);
  std::size_t done = 0;  // text before it is in `out`
  for (std::size_t at = 0; at < text.size();) {
    if (!set.can_start(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    const std::size_t literal = mode == Mode::segments ? cursor.literal_end(base + at) - base : 0;
    std::optional<Found> best;
    set.for_each_prefix(text.substr(at), [&](TokenId index, std::size_t length) {
      const auto i = static_cast<std::size_t>(index);
      const bool guarded = added_[i].special || markup_[i];
      if (mode == Mode::segments && guarded && at + length > literal) return;
      if (added_[i].single_word && !stands_alone(text, at, at + length)) return;
      best = Found{at, at + length, static_cast<std::uint32_t>(index)};
    });
    if (!best) {
      ++at;
      continue;
    }
    const AddedToken& token = added_[best->index];
    at = best->end;
    if (mode == Mode::plain && token.special) continue;
    const std::size_t begin = token.lstrip ? skip_space_back(text, best->begin, done) : best->begin;
    if (begin > done) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(best->begin, best->end - best->begin), token.id});
    if (token.rstrip) at = skip_space(text, at);
    done = at;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

void AddedTokens::split(Mode mode, std::string_view text, std::span<const LiteralRange> literals,
                        std::vector<Section>& out) const {
  if (text.empty()) return;
  if (normalized_.empty()) {
    split_with(raw_, mode, text, text, literals, out);
    return;
  }
  std::vector<Section> first;
  split_with(raw_, mode, text, text, literals, first);
  for (const Section& section : first) {
    if (section.id >= 0) {
      out.push_back(section);
    } else {
      split_with(normalized_, mode, section.text, text, literals, out);
    }
  }
}

void AddedTokens::split_all(std::string_view text, std::vector<Section>& out) const { split(Mode::all, text, {}, out); }
void AddedTokens::split_plain(std::string_view text, std::vector<Section>& out) const {
  split(Mode::plain, text, {}, out);
}
void AddedTokens::split_segments(std::string_view text, std::span<const LiteralRange> literals,
                                 std::vector<Section>& out) const {
  split(Mode::segments, text, literals, out);
}

}  // namespace adze::text
