// From the text of a pattern to its program: a recursive descent parser into a tree, then the tree into instructions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/limits.hpp"
#include "text/pattern.hpp"

namespace adze::text {

namespace {

using Item = CodePointClass::Item;

struct NamedCategories {
  std::string_view name;
  CategoryMask mask;
};

constexpr CategoryMask any_of(std::initializer_list<Category> list) {
  CategoryMask mask = 0;
  for (const Category c : list) mask |= mask_of(c);
  return mask;
}

constexpr auto kCategoryNames = [] {
  using enum Category;
  return std::array<NamedCategories, 37>{{
      {"L", any_of({Ll, Lm, Lo, Lt, Lu})},
      {"M", any_of({Mc, Me, Mn})},
      {"N", any_of({Nd, Nl, No})},
      {"P", any_of({Pc, Pd, Pe, Pf, Pi, Po, Ps})},
      {"S", any_of({Sc, Sk, Sm, So})},
      {"Z", any_of({Zl, Zp, Zs})},
      {"C", any_of({Cn, Cc, Cf, Co, Cs})},
      {"Cn", mask_of(Cn)},
      {"Cc", mask_of(Cc)},
      {"Cf", mask_of(Cf)},
      {"Co", mask_of(Co)},
      {"Cs", mask_of(Cs)},
      {"Ll", mask_of(Ll)},
      {"Lm", mask_of(Lm)},
      {"Lo", mask_of(Lo)},
      {"Lt", mask_of(Lt)},
      {"Lu", mask_of(Lu)},
      {"Mc", mask_of(Mc)},
      {"Me", mask_of(Me)},
      {"Mn", mask_of(Mn)},
      {"Nd", mask_of(Nd)},
      {"Nl", mask_of(Nl)},
      {"No", mask_of(No)},
      {"Pc", mask_of(Pc)},
      {"Pd", mask_of(Pd)},
      {"Pe", mask_of(Pe)},
      {"Pf", mask_of(Pf)},
      {"Pi", mask_of(Pi)},
      {"Po", mask_of(Po)},
      {"Ps", mask_of(Ps)},
      {"Sc", mask_of(Sc)},
      {"Sk", mask_of(Sk)},
      {"Sm", mask_of(Sm)},
      {"So", mask_of(So)},
      {"Zl", mask_of(Zl)},
      {"Zp", mask_of(Zp)},
      {"Zs", mask_of(Zs)},
  }};
}();

struct Node {
  enum class Kind : std::uint8_t { empty, one, ahead, not_ahead, sequence, choice, repeat } kind = Kind::empty;
  std::uint32_t cls = 0;
  std::vector<Node> children = {};
  std::uint32_t min = 1, max = 1;
  bool possessive = false;
};

constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;
}  // namespace

class PatternCompiler {
 public:
  explicit PatternCompiler(std::string_view source) : source_(source) {}

  Result<Pattern> compile() {
    if (!is_valid_utf8(source_)) return refuse("bytes that are not UTF-8");
    ADZE_TRY(const Node root, alternatives(0));
    if (at_ != source_.size()) return refuse("an unmatched ')'");
    ADZE_TRY_STATUS(emit(root));
    pattern_.program_.push_back({});  // accept
    for (auto& cls : pattern_.classes_) fill_ascii(cls);
    for (std::uint32_t i = 0; i < pattern_.program_.size(); ++i) find_first(i);
    pattern_.source_ = std::string(source_);
    return std::move(pattern_);
  }

 private:
  tl::unexpected<Error> refuse(std::string_view what) const {
    return fail(ErrorCode::unsupported_feature,
                fmt::format("the pre-tokenizer pattern \"{}\" has {} at byte {}, which Adze does not support",
                            source_.substr(0, 200), what, at_),
                "use a model with a supported pre-tokenizer, or report the pattern");
  }

  bool end() const { return at_ == source_.size(); }
  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t next() {
    const CodePoint c = code_point_at(source_, at_);
    at_ += c.bytes;
    return c.value;
  }

  Result<Node> alternatives(int depth) {
    if (depth > limits::kPatternMaxDepth) return refuse("groups nested too deep");
    Node choice{.kind = Node::Kind::choice};
    do {
      ADZE_TRY(Node branch, sequence(depth));
      choice.children.push_back(std::move(branch));
    } while (take("|"));
    if (choice.children.size() == 1) return std::move(choice.children.front());
    return choice;
  }

  Result<Node> sequence(int depth) {
    Node all{.kind = Node::Kind::sequence};
    while (!end() && !looking_at("|") && !looking_at(")")) {
      ADZE_TRY(Node atom_node, atom(depth));
      ADZE_TRY(Node repeated, quantified(std::move(atom_node)));
      all.children.push_back(std::move(repeated));
    }
    return all;
  }

  Result<Node> atom(int depth) {
    if (looking_at("(")) return group(depth);
    if (looking_at("[")) return class_node(bracket(depth));
    if (looking_at("\\")) return class_node(escape());
    if (looking_at("^") || looking_at("$")) return refuse("an anchor");
    if (looking_at("*") || looking_at("+") || looking_at("?") || looking_at("{")) return refuse("a stray quantifier");
    if (take(".")) {
      CodePointClass cls{.items = {Item{.first = '\n', .last = '\n'}}, .negated = true};
      return class_node(std::move(cls));
    }
    return class_node(literal(next()));
  }

  Result<Node> group(int depth) {
    const bool outer = ignore_case_;
    Node::Kind look = Node::Kind::empty;
    if (take("(?i:")) {
      ignore_case_ = true;
    } else if (take("(?=")) {
      look = Node::Kind::ahead;
    } else if (take("(?!")) {
      look = Node::Kind::not_ahead;
    } else if (!take("(?:") && (looking_at("(?") || looking_at("(*") || !take("("))) {
      return refuse("a special group");
    }
    ADZE_TRY(Node inner, alternatives(depth + 1));
    if (!take(")")) return refuse("an unclosed group");
    ignore_case_ = outer;
    if (look == Node::Kind::empty) return inner;
    if (inner.kind == Node::Kind::sequence && inner.children.size() == 1) {
      Node only = std::move(inner.children.front());
      inner = std::move(only);
    }
    if (inner.kind != Node::Kind::one) return refuse("a lookahead over more than one character class");
    return Node{.kind = look, .cls = inner.cls};
  }

  Result<Node> quantified(Node node) {
    while (!end()) {
      std::uint32_t min = 0, max = kUnbounded;
      if (take("?")) {
        max = 1;
      } else if (take("+")) {
        min = 1;
      } else if (looking_at("{")) {
        ADZE_TRY_STATUS(bounds(min, max));
      } else if (!take("*")) {
        return node;
      }
      if (node.kind == Node::Kind::ahead || node.kind == Node::Kind::not_ahead) return refuse("a repeated lookahead");
      if (node.kind == Node::Kind::repeat) return refuse("a quantifier after a quantifier");
      if (looking_at("?")) return refuse("a lazy quantifier");
      const bool possessive = take("+");
      Node repeat{.kind = Node::Kind::repeat, .min = min, .max = max, .possessive = possessive};
      repeat.children.push_back(std::move(node));
      node = std::move(repeat);
    }
    return node;
  }

  Status bounds(std::uint32_t& min, std::uint32_t& max) {
    take("{");
    const auto number = [&](std::uint32_t& value) {
      const std::size_t start = at_;
      value = 0;
      while (!end() && source_[at_] >= '0' && source_[at_] <= '9' && value <= limits::kPatternMaxRepeat) {
        value = value * 10 + static_cast<std::uint32_t>(source_[at_++] - '0');
      }
      return at_ != start;
    };
    const bool has_min = number(min);
    max = min;
    if (take(",") && !number(max)) max = kUnbounded;
    if (!has_min && max == kUnbounded) return refuse("a malformed {m,n}");
    if (!take("}") || min > limits::kPatternMaxRepeat ||
        (max != kUnbounded && (max > limits::kPatternMaxRepeat || max < min || max == 0))) {
      return refuse("a malformed or too large {m,n}");
    }
    return {};
  }

  CodePointClass literal(char32_t c) const {
    CodePointClass cls{.items = {Item{.first = c, .last = c}}};
    if (ignore_case_) add_other_cases(cls, c);
    return cls;
  }

  // The simple case folds of ASCII letters; two of them have a third form outside ASCII.
  static void add_other_cases(CodePointClass& cls, char32_t c) {
    const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
    if (!upper && !lower) return;
    const char32_t other = c ^ 0x20;
    cls.items.push_back({.first = other, .last = other});
    const char32_t folded = c | 0x20;
    if (folded == 's') cls.items.push_back({.first = 0x17F, .last = 0x17F});
    if (folded == 'k') cls.items.push_back({.first = 0x212A, .last = 0x212A});
  }

  static bool cased_beyond_ascii(char32_t c) {
    using enum Category;
    return c >= 0x80 && has_category(c, mask_of(Ll) | mask_of(Lu) | mask_of(Lt));
  }

  Result<Node> class_node(Result<CodePointClass> cls) {
    if (!cls) return tl::unexpected(std::move(cls.error()));
    if (ignore_case_ && cls->items.size() == 1 && cls->items[0].kind == Item::Kind::range &&
        cased_beyond_ascii(cls->items[0].first)) {
      return refuse("a letter beyond ASCII inside (?i:...)");
    }
    return Node{.kind = Node::Kind::one, .cls = add_class(std::move(*cls))};
  }

  std::uint32_t add_class(CodePointClass cls) {
    pattern_.classes_.push_back(std::move(cls));
    return static_cast<std::uint32_t>(pattern_.classes_.size() - 1);
  }

  // \n, \s, \p{L}, \x41, \. and so on, as a class of one item.
  Result<CodePointClass> escape() {
    take("\\");
    if (end()) return refuse("a lone backslash");
    const std::size_t start = at_;
    const char32_t c = next();
    const auto one = [&](char32_t value) { return literal(value); };
    const auto kind = [](Item::Kind k, bool negated) {
      return CodePointClass{.items = {Item{.kind = k, .negated = negated}}};
    };
    switch (c) {
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 't': return one('\t');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 's': return kind(Item::Kind::white_space, false);
      case 'S': return kind(Item::Kind::white_space, true);
      case 'w': return kind(Item::Kind::word, false);
      case 'W': return kind(Item::Kind::word, true);
      case 'd':
      case 'D':
        return CodePointClass{
            .items = {Item{.kind = Item::Kind::categories, .negated = c == 'D', .categories = mask_of(Category::Nd)}}};
      case 'p':
      case 'P': return property(c == 'P');
      case 'x':
      case 'u': return hexadecimal(c == 'u');
      default: break;
    }
    if (c < 0x80 && (is_word(c) || c == '<')) {
      at_ = start;
      return refuse("an unknown escape");
    }
    return one(c);
  }

  Result<CodePointClass> property(bool negated) {
    if (!take("{")) return refuse("\\p without braces");
    if (take("^")) negated = !negated;
    const std::size_t close = source_.find('}', at_);
    if (close == std::string_view::npos) return refuse("an unclosed \\p{");
    const std::string_view name = source_.substr(at_, close - at_);
    for (const auto& row : kCategoryNames) {
      if (row.name != name) continue;
      at_ = close + 1;
      return CodePointClass{
          .items = {Item{.kind = Item::Kind::categories, .negated = negated, .categories = row.mask}}};
    }
    return refuse(fmt::format("the property \\p{{{}}}", name));
  }

  Result<CodePointClass> hexadecimal(bool four_digits) {
    const bool braces = !four_digits && take("{");
    const std::size_t most = braces ? 6 : four_digits ? 4 : 2;
    char32_t value = 0;
    std::size_t digits = 0;
    for (; digits < most && !end(); ++digits, ++at_) {
      const char d = source_[at_];
      if (d >= '0' && d <= '9') {
        value = value * 16 + static_cast<char32_t>(d - '0');
      } else if ((d | 0x20) >= 'a' && (d | 0x20) <= 'f') {
        value = value * 16 + static_cast<char32_t>((d | 0x20) - 'a' + 10);
      } else {
        break;
      }
    }
    if (digits == 0 || (four_digits && digits != 4) || (braces && !take("}")) || value > 0x10FFFF) {
      return refuse("a malformed hexadecimal escape");
    }
    return literal(value);
  }

  Result<CodePointClass> bracket(int depth) {
    if (depth > limits::kPatternMaxDepth) return refuse("classes nested too deep");
    take("[");
    CodePointClass cls{.negated = take("^")};
    bool first = true;
    while (true) {
      if (end()) return refuse("an unclosed class");
      if (!first && take("]")) return cls;
      first = false;
      if (looking_at("[:")) return refuse("a POSIX class");
      if (looking_at("&&")) return refuse("an intersection of classes");
      if (looking_at("[")) {
        ADZE_TRY(CodePointClass nested, bracket(depth + 1));
        cls.items.push_back({.kind = Item::Kind::nested, .nested = add_class(std::move(nested))});
        continue;
      }
      ADZE_TRY(CodePointClass item, bracket_item());
      // "a-z": a range when both ends are single characters and the hyphen is not the last in the class.
      if (looking_at("-") && !looking_at("-]") && single(item)) {
        take("-");
        if (looking_at("[")) return refuse("a class as the end of a range");
        ADZE_TRY(CodePointClass last, bracket_item());
        if (!single(last) || last.items[0].first < item.items[0].first) return refuse("a malformed range");
        add_range(cls, item.items[0].first, last.items[0].first);
      } else {
        cls.items.insert(cls.items.end(), item.items.begin(), item.items.end());
      }
    }
  }

  Result<CodePointClass> bracket_item() {
    if (end()) return refuse("an unclosed class");
    if (looking_at("\\")) return escape();
    const char32_t c = next();
    if (ignore_case_ && cased_beyond_ascii(c)) return refuse("a letter beyond ASCII inside (?i:...)");
    return literal(c);
  }

  static bool single(const CodePointClass& cls) {
    return !cls.items.empty() && cls.items[0].kind == Item::Kind::range && cls.items[0].first == cls.items[0].last;
  }

  void add_range(CodePointClass& cls, char32_t first, char32_t last) const {
    cls.items.push_back({.first = first, .last = last});
    if (!ignore_case_) return;
    for (char32_t c = 'A'; c <= 'z'; ++c) {
      if (c >= first && c <= last) add_other_cases(cls, c);
    }
  }

  void fill_ascii(CodePointClass& cls) const {
    for (char32_t c = 0; c < 0x80; ++c) {
      if (pattern_.contains_slow(cls, c)) cls.ascii[c >> 6] |= std::uint64_t{1} << (c & 63);
    }
  }

  static bool can_be_empty(const Node& node) {
    switch (node.kind) {
      case Node::Kind::empty:
      case Node::Kind::ahead:
      case Node::Kind::not_ahead: return true;
      case Node::Kind::one: return false;
      case Node::Kind::sequence: return std::all_of(node.children.begin(), node.children.end(), can_be_empty);
      case Node::Kind::choice: return std::any_of(node.children.begin(), node.children.end(), can_be_empty);
      case Node::Kind::repeat: return node.min == 0 || can_be_empty(node.children.front());
    }
    return true;
  }

  std::uint32_t here() const { return static_cast<std::uint32_t>(pattern_.program_.size()); }

  Status append(Pattern::Instruction instruction) {
    if (pattern_.program_.size() >= limits::kPatternMaxInstructions) {
      return fail(ErrorCode::limit_exceeded,
                  fmt::format("a pre-tokenizer pattern compiles to more than {} instructions",
                              limits::kPatternMaxInstructions));
    }
    pattern_.program_.push_back(instruction);
    return {};
  }

  Status emit(const Node& node) {
    using Op = Pattern::Op;
    switch (node.kind) {
      case Node::Kind::empty: return {};
      case Node::Kind::one: return append({.op = Op::one, .a = node.cls});
      case Node::Kind::ahead: return append({.op = Op::ahead, .a = node.cls});
      case Node::Kind::not_ahead: return append({.op = Op::not_ahead, .a = node.cls});
      case Node::Kind::sequence:
        for (const Node& child : node.children) ADZE_TRY_STATUS(emit(child));
        return {};
      case Node::Kind::choice: return emit_choice(node);
      case Node::Kind::repeat: return emit_repeat(node);
    }
    return {};
  }

  Status emit_choice(const Node& node) {
    std::vector<std::uint32_t> jumps;
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const bool last = i + 1 == node.children.size();
      const std::uint32_t split = here();
      if (!last) ADZE_TRY_STATUS(append({.op = Pattern::Op::split, .a = split + 1}));
      ADZE_TRY_STATUS(emit(node.children[i]));
      if (last) break;
      jumps.push_back(here());
      ADZE_TRY_STATUS(append({.op = Pattern::Op::jump}));
      pattern_.program_[split].b = here();
    }
    for (const std::uint32_t jump : jumps) pattern_.program_[jump].a = here();
    return {};
  }

  Status emit_repeat(const Node& node) {
    using Op = Pattern::Op;
    const Node* body = &node.children.front();
    while (body->kind == Node::Kind::sequence && body->children.size() == 1) body = &body->children.front();
    if (body->kind == Node::Kind::one) {
      return append(
          {.op = node.possessive ? Op::possessive : Op::loop, .a = body->cls, .min = node.min, .max = node.max});
    }
    if (node.possessive) return refuse("a possessive group");
    if (can_be_empty(*body) && node.max > 1) return refuse("a repeat of what may be empty");
    for (std::uint32_t i = 0; i < node.min; ++i) ADZE_TRY_STATUS(emit(*body));
    if (node.max == kUnbounded) {
      const std::uint32_t split = here();
      ADZE_TRY_STATUS(append({.op = Op::split, .a = split + 1}));
      ADZE_TRY_STATUS(emit(*body));
      ADZE_TRY_STATUS(append({.op = Op::jump, .a = split}));
      pattern_.program_[split].b = here();
      return {};
    }
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = node.min; i < node.max; ++i) {
      splits.push_back(here());
      ADZE_TRY_STATUS(append({.op = Op::split, .a = here() + 1}));
      ADZE_TRY_STATUS(emit(*body));
    }
    for (const std::uint32_t split : splits) pattern_.program_[split].b = here();
    return {};
  }

  // What the first alternative of a split can start with, so that match need not try it in vain.
  void find_first(std::uint32_t index) {
    auto& split = pattern_.program_[index];
    if (split.op != Pattern::Op::split) return;
    std::uint64_t first[2] = {0, 0};
    for (std::uint32_t pc = split.a;;) {
      const auto& i = pattern_.program_[pc];
      const bool takes = i.op == Pattern::Op::one || i.op == Pattern::Op::loop || i.op == Pattern::Op::possessive;
      if (!takes) return;  // too clever a start: no filter
      const auto& cls = pattern_.classes_[i.a];
      first[0] |= cls.ascii[0];
      first[1] |= cls.ascii[1];
      if (i.op != Pattern::Op::one && i.min == 0) {
        split.first_other = true;
        ++pc;
        continue;
      }
      split.first_other = split.first_other || beyond_ascii(cls);
      break;
    }
    split.has_first = true;
    split.first[0] = first[0];
    split.first[1] = first[1];
  }

  static bool beyond_ascii(const CodePointClass& cls) {
    if (cls.negated) return true;
    return std::any_of(cls.items.begin(), cls.items.end(), [](const Item& item) {
      return item.kind != Item::Kind::range || item.negated || item.last >= 0x80;
    });
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
  Pattern pattern_;
};

Result<Pattern> Pattern::compile(std::string_view source) { return PatternCompiler(source).compile(); }

}  // namespace adze::text
