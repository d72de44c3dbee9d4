// Hostile templates and inputs: each ends in a typed error, soon, and in little memory.
#include <gtest/gtest.h>
#include <malloc.h>

#include <ctime>
#include <string>

#include "base/limits.hpp"
#include "text/chat_template.hpp"

namespace adze::text {
namespace {

Error error_of(const std::string& source, const std::string& input = "{}") {
  const std::clock_t begin = std::clock();  // of this process: neighbours do not count
  Error error{ErrorCode::io, "no error", {}};
  const auto made = ChatTemplate::parse(source);
  if (!made) {
    error = made.error();
  } else if (const auto got = made->render(input); !got) {
    error = got.error();
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 5.0) << source.substr(0, 80);  // under 1 s without sanitizers
  return error;
}

void expect_limit(const std::string& source, const std::string& words) {
  const Error error = error_of(source);
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded) << source.substr(0, 80) << ": " << error.message;
  EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
}

std::string times(std::string_view text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Limits, EndlessWork) {
  EXPECT_NE(error_of("{% for i in range(1000000000) %}x{% endfor %}").message.find("Range too big"), std::string::npos);
  expect_limit(times("{% for i in range(1000) %}", 5) + "x" + times("{% endfor %}", 5), "steps");
  expect_limit("{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}", "steps");
  expect_limit(
      "{{ range(100000) | map('string') | map('upper') | map('lower') | list | sort | unique | list | length }}"
      "{{ range(100000) | sum }}{% for i in range(100000) %}{{ range(100000) | sum }}{% endfor %}",
      "steps");
}

TEST(Limits, DeepCalls) {
  expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels deep");
  expect_limit("{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}", "levels deep");
  expect_limit(
      "{% macro a() %}{% call b() %}{% endcall %}{% endmacro %}{% macro b() %}{{ caller() }}{{ a() }}{% endmacro %}{{ "
      "a() }}",
      "levels deep");
}

TEST(Limits, DeepSyntax) {
  expect_limit("{{ " + times("(", 5000) + "1" + times(")", 5000) + " }}", "levels deep");
  expect_limit("{{ " + times("[", 5000) + times("]", 5000) + " }}", "levels deep");
  expect_limit("{{ " + times("not ", 5000) + "1 }}", "levels deep");
  expect_limit("{{ " + times("-", 5000) + "1 }}", "levels deep");
  expect_limit(times("{% if 1 %}", 5000) + times("{% endif %}", 5000), "levels deep");
  expect_limit("{{ 1" + times("+1", 5000) + " }}", "operators deep");
  expect_limit("{{ x" + times(".y", 5000) + " }}", "operators deep");
  expect_limit("{{ x" + times("|e", 5000) + " }}", "operators deep");
  expect_limit("{{ x" + times(" if y", 5000) + " }}", "operators deep");
}

TEST(Limits, ManyTokens) {
  expect_limit(times("{{ a }}", 50000), "tokens");
  expect_limit("{{ [" + times("1,", 200000) + "] }}", "tokens");
  expect_limit("{% macro m() %}{% endmacro %}{{ m(*range(20000)) }}", "arguments");
}

TEST(Limits, DeepValues) {
  expect_limit("{% set n = namespace(x=[]) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
               "levels deep");
  expect_limit("{% set n = namespace(x=0) %}{% set n.x = n %}{{ n }}", "levels deep");
  expect_limit(
      "{% set n = namespace(x=[]) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}"
      "{{ n.x == [n.x] or n.x | tojson }}",
      "levels deep");
  const Error nested = error_of("x", "{\"a\": " + times("[", 100000) + times("]", 100000) + "}");
  EXPECT_EQ(nested.code, ErrorCode::limit_exceeded) << nested.message;
}

TEST(Limits, Output) {
  expect_limit("{% set s = 'x' * 1000000 %}{% for i in range(64) %}{{ s }}{% endfor %}", "writes more than");
  expect_limit(times("{% for i in range(1000) %}", 2) + times("x", 64) + times("{% endfor %}", 2), "writes more than");
}

TEST(Limits, Memory) {
  expect_limit("{% set n = namespace(s='x') %}{% for i in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
               "memory");
  expect_limit("{% set n = namespace(s=[1]) %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}",
               "memory");
  expect_limit("{{ 'x' * 1000000000000 }}", "");
  expect_limit("{{ ('x' * 1000000) * 1000000 }}", "memory");
  expect_limit("{{ [1] * 1000000000000 }}", "");
  expect_limit("{% set a = 'x' * 1000000 %}{{ a | replace('x', a) }}", "memory");
  expect_limit("{{ ('a,' * 1000000).split(',') | list | sort | join('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') }}",
               "");
  EXPECT_EQ(error_of("{{ 7 ** (7 ** (7 ** 7)) }}").code, ErrorCode::template_error);
  EXPECT_EQ(error_of("{{ '%999999999d' % 1 }}").code, ErrorCode::template_error);
  EXPECT_EQ(error_of("{{ '{:999999999}'.format(1) }}").code, ErrorCode::template_error);
  EXPECT_EQ(error_of(std::string(limits::kTemplateMaxSourceBytes + 1, 'x')).code, ErrorCode::limit_exceeded);
}

TEST(Limits, CyclesAreFreed) {
  const auto made = ChatTemplate::parse(
      "{% set n = namespace(b='x' * 1000000) %}{% set n.self = n %}{% macro m() %}{% endmacro %}{% set n.m = m %}");
  ASSERT_TRUE(made.has_value());
  const auto used = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const auto before = used();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(made->render("{}").has_value());
  EXPECT_LT(used(), before + 1000000);
}

TEST(Sandbox, GivesNothingAway) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ ''.__class__.__mro__ }}", "SecurityError: access to attribute '__class__' of 'str' object is unsafe."},
      {"{{ {}.update({'a': 1}) }}", "SecurityError: access to attribute 'update' of 'dict' object is unsafe."},
      {"{{ [].append(1) }}", "SecurityError: access to attribute 'append' of 'list' object is unsafe."},
      {"{{ ''['__class__'].x }}", "SecurityError"},
      {"{{ '{0.__class__.__mro__}'.format(1) }}", "SecurityError"},
      {"{{ [''] | map(attribute='__class__.__mro__') | list }}", "SecurityError"},
      {"{{ '' | attr('__class__') | attr('__mro__') }}", "SecurityError"},
      {"{% include '/etc/hostname' %}", "SecurityError: 'include' is not available"},
      {"{% import 'x' as y %}", "SecurityError: 'import' is not available"},
      {"{% from 'x' import y %}", "SecurityError: 'from' is not available"},
      {"{% extends 'x' %}", "SecurityError: 'extends' is not available"},
  };
  for (const auto& [source, words] : cases) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code, ErrorCode::template_error) << source;
    EXPECT_EQ(error.message.substr(0, std::string_view(words).size()), words) << source;
  }
}

TEST(Errors, NameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n\n{{ x.y.z }}", "UndefinedError: 'x' is undefined (line 3 of the chat template)"},
      {"\n{% if true %}\n",
       "TemplateSyntaxError: Unexpected end of template. Jinja was looking for the following tags: "
       "'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'. (line 2 of the chat "
       "template)"},
      {"{% endif %}", "TemplateSyntaxError: Encountered unknown tag 'endif'. (line 1 of the chat template)"},
      {"{{ 'a' | nosuch }}", "TemplateAssertionError: No filter named 'nosuch'. (line 1 of the chat template)"},
      {"{{ 1 +\n'a' }}", "TypeError: unsupported operand type(s) for +: 'int' and 'str' (line 1 of the chat template)"},
      {"{% break %}", "TemplateSyntaxError: 'break' outside loop (line 1 of the chat template)"},
      {"{{ a b }}",
       "TemplateSyntaxError: expected token 'end of print statement', got 'b' (line 1 of the chat template)"},
  };
  for (const auto& [source, words] : cases) EXPECT_EQ(error_of(source).message, words) << source;
}

}  // namespace
}  // namespace adze::text
