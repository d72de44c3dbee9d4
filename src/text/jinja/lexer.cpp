#include "text/jinja/lexer.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/limits.hpp"
#include "text/jinja/error.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {

[[noreturn]] static void syntax_error(std::string message, int line) {
  throw Failure{ErrorCode::template_error, "TemplateSyntaxError", std::move(message), line};
}

namespace {

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return is_digit_char(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();  // one final newline does not count
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}
  std::vector<Token> run();

 private:
  char at(std::size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  bool starts(std::size_t i, std::string_view what) const {
    return source_.substr(std::min(i, source_.size())).starts_with(what);
  }
  std::size_t skip_space(std::size_t i) const;
  void move_to(std::size_t end);
  void push(TokenKind kind, std::string text);
  void push_data(std::size_t end, char sign, bool variable);
  bool raw_begin(std::size_t tag, std::size_t& end) const;
  void comment();
  void raw();
  void inside(bool variable);
  bool closes(bool variable);
  void expression_token();
  bool real_number();
  bool integer_number();
  void string_literal();
  void name();
  void operator_token();
  std::string unescape(std::string_view body, int line) const;

  std::string_view source_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was read last ended with a newline
  std::vector<Token> tokens_;
  std::vector<char> brackets_;  // the closing bracket of each open one
};

void Lexer::push(TokenKind kind, std::string text) {
  if (tokens_.size() >= limits::kTemplateMaxTokens)
    throw Failure{ErrorCode::limit_exceeded,
                  {},
                  fmt::format("the chat template has more than {} tokens", limits::kTemplateMaxTokens),
                  line_};
  tokens_.push_back({kind, line_, std::move(text), {}, 0});
}

std::size_t Lexer::skip_space(std::size_t i) const {
  while (i < source_.size()) {
    std::size_t next = i;
    if (!is_space(decode_at(source_, next))) break;
    i = next;
  }
  return i;
}

void Lexer::move_to(std::size_t end) {
  line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                       source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
  if (end > pos_) line_starting_ = source_[end - 1] == '\n';
  pos_ = end;
}

// Emits the text up to a tag at `end`, stripped as the tag's sign and lstrip_blocks ask.
void Lexer::push_data(std::size_t end, char sign, bool variable) {
  std::size_t keep = end;
  if (sign == '-') {
    while (keep > pos_) {
      const std::size_t before = previous_code_point(source_, keep);
      std::size_t cursor = before;
      if (!is_space(decode_at(source_, cursor))) break;
      keep = before;
    }
  } else if (sign != '+' && !variable) {
    const std::string_view text = source_.substr(pos_, end - pos_);
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line_begin > 0 || line_starting_) && skip_space(pos_ + line_begin) >= end) keep = pos_ + line_begin;
  }
  if (keep > pos_) push(TokenKind::data, std::string(source_.substr(pos_, keep - pos_)));
  move_to(end);
}

// Whether `{%` at `tag` begins a raw block; `end` is then where its text starts.
bool Lexer::raw_begin(std::size_t tag, std::size_t& end) const {
  std::size_t i = tag + 2;
  if (at(i) == '-' || at(i) == '+') ++i;
  i = skip_space(i);
  if (!starts(i, "raw")) return false;
  i = skip_space(i + 3);
  if (starts(i, "-%}")) {
    end = skip_space(i + 3);
    return true;
  }
  end = i + 2;
  return starts(i, "%}");
}

void Lexer::comment() {
  const int begin = line_;
  const std::size_t close = source_.find("#}", pos_);
  if (close == std::string_view::npos) syntax_error("Missing end of comment tag", begin);
  std::size_t end = close + 2;
  if (close > pos_ && source_[close - 1] == '-')
    end = skip_space(end);
  else if (!(close > pos_ && source_[close - 1] == '+') && at(end) == '\n')
    ++end;
  move_to(end);
}

void Lexer::raw() {
  for (std::size_t tag = source_.find("{%", pos_); tag != std::string_view::npos; tag = source_.find("{%", tag + 1)) {
    std::size_t i = tag + 2;
    char sign = '\0';
    if (at(i) == '-' || at(i) == '+') sign = at(i++);
    i = skip_space(i);
    if (!starts(i, "endraw")) continue;
    i = skip_space(i + 6);
    std::size_t end = 0;
    if (starts(i, "+%}"))
      end = i + 3;
    else if (starts(i, "-%}"))
      end = skip_space(i + 3);
    else if (starts(i, "%}"))
      end = i + 2 + (at(i + 2) == '\n' ? 1 : 0);
    else
      continue;
    push_data(tag, sign, false);
    move_to(end);
    return;
  }
  syntax_error("Missing end of raw directive", line_);
}

std::vector<Token> Lexer::run() {
  while (pos_ < source_.size()) {
    std::size_t tag = pos_;
    while ((tag = source_.find('{', tag)) != std::string_view::npos) {
      const char kind = at(tag + 1);
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      push(TokenKind::data, std::string(source_.substr(pos_)));
      move_to(source_.size());
      break;
    }
    const char kind = at(tag + 1);
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
    push_data(tag, sign, kind == '{');
    std::size_t raw_text = 0;
    if (kind == '%' && raw_begin(tag, raw_text)) {
      move_to(raw_text);
      raw();
      continue;
    }
    if (kind != '#') push(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin, "");
    move_to(tag + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#')
      comment();
    else
      inside(kind == '{');
  }
  push(TokenKind::end, "");
  return std::move(tokens_);
}

// The end of the tag at the current position, if it is there.
bool Lexer::closes(bool variable) {
  const std::string_view mark = variable ? "}}" : "%}";
  std::size_t end = 0;
  if (at(pos_) == '-' && starts(pos_ + 1, mark))
    end = skip_space(pos_ + 3);
  else if (!variable && at(pos_) == '+' && starts(pos_ + 1, mark))
    end = pos_ + 3;
  else if (starts(pos_, mark))
    end = pos_ + 2 + (!variable && at(pos_ + 2) == '\n' ? 1 : 0);
  else
    return false;
  push(variable ? TokenKind::variable_end : TokenKind::block_end, "");
  move_to(end);
  return true;
}

void Lexer::inside(bool variable) {
  brackets_.clear();
  while (pos_ < source_.size()) {
    if (brackets_.empty() && closes(variable)) return;
    const std::size_t after_space = skip_space(pos_);
    if (after_space > pos_)
      move_to(after_space);
    else
      expression_token();
  }
  push(TokenKind::end, "");
}

void Lexer::expression_token() {
  const char c = at(pos_);
  if (is_digit_char(c)) {
    if (real_number() || integer_number()) return;
    syntax_error(fmt::format("unexpected char '{}' at {}", c, pos_), line_);
  }
  if (is_name_char(c))
    name();
  else if (c == '\'' || c == '"')
    string_literal();
  else
    operator_token();
}

// A number with a fraction or an exponent; not straight after a dot, where `a.1.2` has two indices.
bool Lexer::real_number() {
  if (pos_ > 0 && source_[pos_ - 1] == '.') return false;
  const auto digits = [&](std::size_t i) {  // (\d+_)*\d+
    while (is_digit_char(at(i)) || (at(i) == '_' && i > pos_ && is_digit_char(at(i - 1)) && is_digit_char(at(i + 1))))
      ++i;
    return i;
  };
  std::size_t end = digits(pos_);
  bool is_real = false;
  if (at(end) == '.' && is_digit_char(at(end + 1))) {
    end = digits(end + 1);
    is_real = true;
  }
  if (at(end) == 'e' || at(end) == 'E') {
    std::size_t exponent = end + 1;
    if (at(exponent) == '+' || at(exponent) == '-') ++exponent;
    if (is_digit_char(at(exponent))) {
      end = digits(exponent);
      is_real = true;
    }
  }
  if (!is_real) return false;
  std::string text(source_.substr(pos_, end - pos_));
  std::erase(text, '_');
  push(TokenKind::real, "");
  tokens_.back().real = std::strtod(text.c_str(), nullptr);
  move_to(end);
  return true;
}

bool Lexer::integer_number() {
  int base = 10;
  std::size_t begin = pos_;
  if (at(pos_) == '0') {
    const char mark = static_cast<char>(at(pos_ + 1) | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) begin += 2;
  }
  const auto is_digit_of_base = [&](char c) {
    const char low = static_cast<char>(c | 0x20);
    const int digit = is_digit_char(c) ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
    return digit < base;
  };
  // Decimal numbers do not start with a zero: of 007 the zeros are one number, 7 the next.
  const bool zeros = base == 10 && at(pos_) == '0';
  const auto fits = [&](char c) { return zeros ? c == '0' : is_digit_of_base(c); };
  std::size_t end = begin;
  while (fits(at(end)) || (at(end) == '_' && (end > begin || base != 10) && fits(at(end + 1)))) ++end;
  if (end == begin) {
    base = 10;
    begin = pos_;
    end = pos_ + 1;
  }
  std::string text(source_.substr(begin, end - begin));
  std::erase(text, '_');
  if (text.size() > 4300) syntax_error("integer literal is too long", line_);
  push(TokenKind::integer, "");
  tokens_.back().integer = *BigInt::parse(text, base);
  move_to(end);
  return true;
}

void Lexer::name() {
  std::size_t end = pos_;
  while (is_name_char(at(end)) && end < source_.size()) {
    std::size_t next = end;
    const char32_t code = decode_at(source_, next);
    if (!is_name_rest(code)) break;
    end = next;
  }
  if (end == pos_) {
    std::size_t next = pos_;
    decode_at(source_, next);
    syntax_error(fmt::format("unexpected char '{}' at {}", source_.substr(pos_, next - pos_), pos_), line_);
  }
  push(TokenKind::name, std::string(source_.substr(pos_, end - pos_)));
  move_to(end);
}

void Lexer::string_literal() {
  const char quote = at(pos_);
  std::size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) syntax_error(fmt::format("unexpected char '{}' at {}", quote, pos_), line_);
  push(TokenKind::string, unescape(source_.substr(pos_ + 1, end - pos_ - 1), line_));
  move_to(end + 1);
}

void append_hex_escape(std::string& out, std::string_view body, std::size_t& i, std::size_t digits, int line) {
  char32_t code = 0;
  std::size_t taken = 0;
  for (; taken < digits && i < body.size(); ++taken, ++i) {
    const char low = static_cast<char>(body[i] | 0x20);
    if (is_digit_char(body[i]))
      code = code * 16 + static_cast<char32_t>(body[i] - '0');
    else if (low >= 'a' && low <= 'f')
      code = code * 16 + static_cast<char32_t>(low - 'a' + 10);
    else
      break;
  }
  if (taken < digits) syntax_error("truncated escape in a string literal", line);
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) syntax_error("illegal Unicode character", line);
  append_utf8(out, code);
}

std::string Lexer::unescape(std::string_view body, int line) const {
  std::string out;
  for (std::size_t i = 0; i < body.size();) {
    if (body[i] != '\\') {
      out.push_back(body[i++]);
      continue;
    }
    const char c = body[i + 1];  // there is one: a backslash takes the character behind it along
    i += 2;
    switch (c) {
      case '\n': break;
      case 'n': out.push_back('\n'); break;
      case 't': out.push_back('\t'); break;
      case 'r': out.push_back('\r'); break;
      case 'a': out.push_back('\a'); break;
      case 'b': out.push_back('\b'); break;
      case 'f': out.push_back('\f'); break;
      case 'v': out.push_back('\v'); break;
      case '\\':
      case '\'':
      case '"': out.push_back(c); break;
      case 'x': append_hex_escape(out, body, i, 2, line); break;
      case 'u': append_hex_escape(out, body, i, 4, line); break;
      case 'U': append_hex_escape(out, body, i, 8, line); break;
      case 'N': syntax_error("\\N{...} is not supported in string literals; write the character itself", line);
      default:
        if (c >= '0' && c <= '7') {
          char32_t code = static_cast<char32_t>(c - '0');
          for (int k = 0; k < 2 && i < body.size() && body[i] >= '0' && body[i] <= '7'; ++k, ++i)
            code = code * 8 + static_cast<char32_t>(body[i] - '0');
          append_utf8(out, code);
        } else {
          out.push_back('\\');
          out.push_back(c);
        }
    }
  }
  return out;
}

void Lexer::operator_token() {
  static constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!starts(pos_, op)) continue;
    if (op == "{") brackets_.push_back('}');
    if (op == "(") brackets_.push_back(')');
    if (op == "[") brackets_.push_back(']');
    if (op == "}" || op == ")" || op == "]") {
      if (brackets_.empty()) syntax_error(fmt::format("unexpected '{}'", op), line_);
      const char expected = brackets_.back();
      brackets_.pop_back();
      if (expected != op[0]) syntax_error(fmt::format("unexpected '{}', expected '{}'", op, expected), line_);
    }
    push(TokenKind::op, std::string(op));
    move_to(pos_ + op.size());
    return;
  }
  syntax_error(fmt::format("unexpected char '{}' at {}", at(pos_), pos_), line_);
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string text = normalize_newlines(source);
  return Lexer(text).run();
}

}  // namespace adze::text::jinja
