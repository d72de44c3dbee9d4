// Template source to tokens, with Jinja's white space rules (trim_blocks, lstrip_blocks, `-` and `+` marks) applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/big_int.hpp"

namespace adze::text::jinja {

enum class TokenKind {
  data,  // template text
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,  // an operator: `text`
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // data, name, string (unescaped), operator
  BigInt integer;
  double real = 0;
};

// Raises TemplateSyntaxError with its line. The source must be valid UTF-8; CR and CR LF count as LF.
std::vector<Token> tokenize(std::string_view source);

}  // namespace adze::text::jinja
