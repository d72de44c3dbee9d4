#include "text/pattern.hpp"

#include "base/check.hpp"

namespace adze::text {

bool Pattern::contains_slow(const CodePointClass& cls, char32_t c) const {
  for (const auto& item : cls.items) {
    bool in = false;
    switch (item.kind) {
      case CodePointClass::Item::Kind::range: in = c >= item.first && c <= item.last; break;
      case CodePointClass::Item::Kind::categories: in = has_category(c, item.categories); break;
      case CodePointClass::Item::Kind::white_space: in = is_white_space(c); break;
      case CodePointClass::Item::Kind::word: in = is_word(c); break;
      case CodePointClass::Item::Kind::nested: in = contains_slow(classes_[item.nested], c); break;
    }
    if (in != item.negated) return !cls.negated;
  }
  return cls.negated;
}

inline bool Pattern::contains(const CodePointClass& cls, char32_t c) const {
  if (c < 0x80) return (cls.ascii[c >> 6] >> (c & 63) & 1) != 0;
  return contains_slow(cls, c);
}

std::size_t Pattern::run(const CodePointClass& cls, std::string_view text, std::size_t at, std::uint32_t max,
                         std::uint32_t& count) const {
  count = 0;
  while (at < text.size() && count < max) {
    const CodePoint c = code_point_at(text, at);
    if (!contains(cls, c.value)) break;
    at += c.bytes;
    ++count;
  }
  return at;
}

namespace {

std::size_t previous_code_point(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

std::size_t advance(std::string_view text, std::size_t at, std::uint32_t code_points) {
  for (; code_points > 0; --code_points) at += code_point_at(text, at).bytes;
  return at;
}

}  // namespace

std::optional<std::size_t> Pattern::match(std::string_view text, std::size_t at, Budget& budget,
                                          Scratch& scratch) const {
  auto& choices = scratch.choices;
  choices.clear();
  std::uint32_t pc = 0;
  const auto spend = [&budget](std::uint64_t steps) {
    budget.steps = budget.steps > steps ? budget.steps - steps : 0;
    return budget.steps != 0;
  };
  while (true) {
    if (!spend(1)) return std::nullopt;
    const Instruction& i = program_[pc];
    bool ok = true;
    switch (i.op) {
      case Op::accept: return at;
      case Op::jump: pc = i.a; break;
      case Op::one: {
        ok = at < text.size();
        if (!ok) break;
        const CodePoint c = code_point_at(text, at);
        ok = contains(classes_[i.a], c.value);
        at += c.bytes;
        ++pc;
        break;
      }
      case Op::loop:
      case Op::possessive: {
        std::uint32_t count = 0;
        const std::size_t end = run(classes_[i.a], text, at, i.max, count);
        if (!spend(count)) return std::nullopt;
        ok = count >= i.min;
        if (!ok) break;
        if (i.op == Op::loop && count > i.min) choices.push_back({pc + 1, end, advance(text, at, i.min)});
        at = end;
        ++pc;
        break;
      }
      case Op::split: {
        if (i.has_first) {
          const bool possible = at < text.size() && (static_cast<unsigned char>(text[at]) < 0x80
                                                         ? (i.first[text[at] >> 6] >> (text[at] & 63) & 1) != 0
                                                         : i.first_other);
          if (!possible) {
            pc = i.b;
            break;
          }
        }
        choices.push_back({i.b, at, at});
        pc = i.a;
        break;
      }
      case Op::ahead:
      case Op::not_ahead: {
        const bool in = at < text.size() && contains(classes_[i.a], code_point_at(text, at).value);
        ok = in == (i.op == Op::ahead);
        ++pc;
        break;
      }
    }
    if (ok) continue;
    // Back to the latest choice; that of a loop gives back one code point, and stays until it has none left to give.
    if (choices.empty()) return std::nullopt;
    auto& choice = choices.back();
    pc = choice.instruction;
    if (choice.at > choice.least) choice.at = previous_code_point(text, choice.at);
    at = choice.at;
    if (choice.at == choice.least) choices.pop_back();
  }
}

}  // namespace adze::text
