// Tokens to syntax tree, by Jinja's grammar. Names are not bound yet.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.hpp"
#include "text/jinja/lexer.hpp"

namespace adze::text::jinja {

// What a token is called in messages.
std::string describe(const Token& token);

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse();
  int constants() const { return constants_; }

 private:
  using Words = std::vector<std::string_view>;

  // tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is_op(std::string_view op) const { return current().kind == TokenKind::op && current().text == op; }
  bool is_name(std::string_view name) const { return current().kind == TokenKind::name && current().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect_kind(TokenKind kind);
  std::string expect_any_name();
  [[noreturn]] void fail(std::string message, int line) const;
  [[noreturn]] void fail_expected(std::string_view what) const;
  [[noreturn]] void fail_unknown_tag(std::string_view name, int line) const;

  // statements
  Body statements(const Words& ends);  // from behind the tag to one of the end tags, which is the current token
  Body statements_to(std::string_view end);
  Body body(const Words* ends);
  void statement(Body& out);
  std::unique_ptr<Statement> if_statement(int line);
  std::unique_ptr<Statement> for_statement(int line);
  std::unique_ptr<Statement> set_statement(int line);
  std::unique_ptr<Statement> with_statement(int line);
  std::unique_ptr<Statement> macro_statement(int line);
  std::unique_ptr<Statement> call_block(int line);
  std::unique_ptr<Statement> filter_block(int line);
  std::unique_ptr<Statement> block_statement(int line);
  std::unique_ptr<Statement> import_statement(const std::string& tag, int line);
  std::unique_ptr<Statement> generation(int line);
  void print_statement(Body& out, int line);
  void loop_control(Body& out, const std::string& tag, int line);
  void signature(Callable& callable);

  // expressions
  ExprPtr expression(bool with_condition = true);
  ExprPtr condition();
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary(bool with_namespace = false);
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr subscripted();
  ExprPtr filter(ExprPtr node, bool start_inline = false);
  ExprPtr test(ExprPtr node);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr string_constant();
  ArgumentList arguments();
  struct TupleRules {
    bool targets = false;         // names only: the left side of an assignment
    bool with_namespace = false;  // ... which may be ns.attribute
    bool with_condition = true;
    bool parenthesised = false;
    std::string_view end = {};  // a name that ends it too
  };
  ExprPtr tuple(const TupleRules& rules);
  ExprPtr target(std::string_view end = {}, bool with_namespace = false);
  std::unique_ptr<Name> name_target();
  void check_target(const Expr& expr) const;

  struct Nesting {
    explicit Nesting(Parser& p);
    ~Nesting() { --parser.nesting_; }
    Parser& parser;
  };
  // Sets the node's height from its children's and refuses trees too high to walk.
  ExprPtr raised(ExprPtr node, std::initializer_list<const Expr*> children) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // for statements around, within the current macro
  int constants_ = 0;
  std::vector<Words> ends_;             // what each open body waits for
  std::vector<std::string> open_tags_;  // for messages
};

}  // namespace adze::text::jinja
