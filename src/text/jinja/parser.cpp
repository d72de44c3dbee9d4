#include "text/jinja/parser.hpp"

#include <algorithm>

#include "base/limits.hpp"

namespace adze::text::jinja {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data: return "template data / text";
    case TokenKind::variable_begin: return "begin of print statement";
    case TokenKind::variable_end: return "end of print statement";
    case TokenKind::block_begin: return "begin of statement block";
    case TokenKind::block_end: return "end of statement block";
    case TokenKind::integer: return "integer";
    case TokenKind::real: return "float";
    case TokenKind::end: return "end of template";
    case TokenKind::name:
    case TokenKind::string:
    case TokenKind::op: return token.text;
  }
  return "token";
}

namespace {

std::string join_words(const std::vector<std::string_view>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "'" : " or '") + std::string(word) + "'";
  return out;
}

}  // namespace

// --- tokens
// -------------------------------------------------------------------------------------------------------------

void Parser::fail(std::string message, int line) const {
  throw Failure{ErrorCode::template_error, "TemplateSyntaxError", std::move(message), line};
}

void Parser::fail_expected(std::string_view what) const {
  if (current().kind == TokenKind::end)
    fail(fmt::format("unexpected end of template, expected '{}'.", what), current().line);
  fail(fmt::format("expected token '{}', got '{}'", what, describe(current())), current().line);
}

void Parser::fail_unknown_tag(std::string_view name, int line) const {
  std::string message =
      name.empty() ? "Unexpected end of template." : fmt::format("Encountered unknown tag '{}'.", name);
  bool known = false;
  for (const Words& words : ends_) known |= std::find(words.begin(), words.end(), name) != words.end();
  if (!ends_.empty()) {
    message += known ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for "
                     : " Jinja was looking for the following tags: ";
    message += join_words(ends_.back()) + ".";
  }
  if (!open_tags_.empty())
    message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
  fail(std::move(message), line);
}

Token Parser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_expected(op);
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}

void Parser::expect_kind(TokenKind kind) {
  if (current().kind != kind) fail_expected(describe(Token{kind, 0, "name", {}, 0}));
  take();
}

std::string Parser::expect_any_name() {
  if (current().kind != TokenKind::name) fail_expected("name");
  return take().text;
}

Parser::Nesting::Nesting(Parser& p) : parser(p) {
  if (++parser.nesting_ > limits::kTemplateMaxDepth)
    throw Failure{ErrorCode::limit_exceeded,
                  {},
                  fmt::format("the chat template nests more than {} levels deep", limits::kTemplateMaxDepth),
                  parser.current().line};
}

ExprPtr Parser::raised(ExprPtr node, std::initializer_list<const Expr*> children) const {
  for (const Expr* child : children)
    if (child != nullptr) node->height = std::max(node->height, child->height + 1);
  if (node->height > limits::kTemplateMaxExpressionHeight)
    throw Failure{ErrorCode::limit_exceeded,
                  {},
                  fmt::format("an expression of the chat template is more than {} operators deep",
                              limits::kTemplateMaxExpressionHeight),
                  node->line};
  return node;
}

// --- statements
// ---------------------------------------------------------------------------------------------------------

Body Parser::parse() { return body(nullptr); }

Body Parser::body(const Words* ends) {
  Body out;
  if (ends != nullptr) ends_.push_back(*ends);
  while (current().kind != TokenKind::end) {
    Token token = take();
    if (token.kind == TokenKind::data) {
      out.push_back(std::make_unique<DataStatement>(std::move(token.text), token.line));
    } else if (token.kind == TokenKind::variable_begin) {
      out.push_back(std::make_unique<OutputStatement>(tuple({}), token.line));
      expect_kind(TokenKind::variable_end);
    } else {
      const bool at_end = ends != nullptr && current().kind == TokenKind::name &&
                          std::find(ends->begin(), ends->end(), current().text) != ends->end();
      if (at_end) break;
      statement(out);
      expect_kind(TokenKind::block_end);
    }
  }
  if (ends != nullptr) {
    if (current().kind == TokenKind::end) fail_unknown_tag("", current().line);
    ends_.pop_back();
  }
  return out;
}

Body Parser::statements(const Words& ends) {
  skip_op(":");
  expect_kind(TokenKind::block_end);
  return body(&ends);
}

Body Parser::statements_to(std::string_view end) {
  Body out = statements({end});
  take();
  return out;
}

void Parser::statement(Body& out) {
  const Nesting nesting(*this);
  if (current().kind != TokenKind::name) fail("tag name expected", current().line);
  const int line = current().line;
  const std::string tag = current().text;
  open_tags_.push_back(tag);
  if (tag == "if")
    out.push_back(if_statement(line));
  else if (tag == "for")
    out.push_back(for_statement(line));
  else if (tag == "set")
    out.push_back(set_statement(line));
  else if (tag == "with")
    out.push_back(with_statement(line));
  else if (tag == "macro")
    out.push_back(macro_statement(line));
  else if (tag == "call")
    out.push_back(call_block(line));
  else if (tag == "filter")
    out.push_back(filter_block(line));
  else if (tag == "block")
    out.push_back(block_statement(line));
  else if (tag == "generation")
    out.push_back(generation(line));
  else if (tag == "print")
    print_statement(out, line);
  else if (tag == "break" || tag == "continue")
    loop_control(out, tag, line);
  else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends")
    out.push_back(import_statement(tag, line));
  else if (tag == "autoescape")
    fail("autoescape is not supported: chat templates are plain text", line);
  else {
    open_tags_.pop_back();
    fail_unknown_tag(tag, line);
  }
  open_tags_.pop_back();
}

std::unique_ptr<Statement> Parser::if_statement(int line) {
  auto node = std::make_unique<IfStatement>(line);
  take();
  for (;;) {
    ExprPtr test = tuple({.with_condition = false});
    Body then = statements({"elif", "else", "endif"});
    node->branches.emplace_back(std::move(test), std::move(then));
    const Token next = take();
    if (next.text == "elif") continue;
    if (next.text == "else") node->otherwise = statements_to("endif");
    return node;
  }
}

std::unique_ptr<Statement> Parser::for_statement(int line) {
  auto node = std::make_unique<ForStatement>(line);
  take();
  ++loops_;
  const std::size_t target_at = at_;
  node->target = target("in");
  expect_name("in");
  node->iterable = tuple({.with_condition = false, .end = "recursive"});
  if (skip_name("if")) {
    node->filter = expression();
    const std::size_t behind = at_;
    at_ = target_at;  // read the target once more, to be bound in the filter's own scope
    node->filter_target = target("in");
    at_ = behind;
  }
  node->recursive = skip_name("recursive");
  node->body = statements({"endfor", "else"});
  --loops_;
  if (take().text == "else") node->otherwise = statements_to("endfor");
  return node;
}

std::unique_ptr<Statement> Parser::set_statement(int line) {
  take();
  ExprPtr to = target({}, true);
  if (skip_op("=")) return std::make_unique<SetStatement>(std::move(to), tuple({}), line);
  auto node = std::make_unique<SetBlock>(line);
  node->target = std::move(to);
  node->filter = filter(nullptr);
  node->body = statements_to("endset");
  return node;
}

std::unique_ptr<Statement> Parser::with_statement(int line) {
  auto node = std::make_unique<WithStatement>(line);
  take();
  while (current().kind != TokenKind::block_end) {
    if (!node->assignments.empty()) expect_op(",");
    ExprPtr to = target();
    expect_op("=");
    ExprPtr value = expression();
    node->assignments.emplace_back(std::move(to), std::move(value));
  }
  node->body = statements_to("endwith");
  return node;
}

void Parser::signature(Callable& callable) {
  expect_op("(");
  while (!is_op(")")) {
    if (!callable.parameters.empty()) expect_op(",");
    auto parameter = name_target();
    if (skip_op("="))
      callable.defaults.push_back(expression());
    else if (!callable.defaults.empty())
      fail("non-default argument follows default argument", current().line);
    callable.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

std::unique_ptr<Statement> Parser::macro_statement(int line) {
  auto node = std::make_unique<MacroStatement>(line);
  take();
  node->target = name_target();
  node->callable.name = node->target->id;
  signature(node->callable);
  const int outer_loops = std::exchange(loops_, 0);
  node->callable.body = statements_to("endmacro");
  loops_ = outer_loops;
  return node;
}

std::unique_ptr<Statement> Parser::call_block(int line) {
  auto node = std::make_unique<CallBlock>(line);
  take();
  if (is_op("(")) signature(node->callable);
  node->call = expression();
  if (node->call->kind != ExprKind::call) fail("expected call", line);
  const int outer_loops = std::exchange(loops_, 0);
  node->callable.body = statements_to("endcall");
  loops_ = outer_loops;
  return node;
}

// transformers' tag around what the assistant says; renders its body, in a scope of its own.
std::unique_ptr<Statement> Parser::generation(int line) {
  auto node = std::make_unique<CallBlock>(line);
  take();
  const int outer_loops = std::exchange(loops_, 0);
  node->callable.body = statements_to("endgeneration");
  loops_ = outer_loops;
  return node;
}

std::unique_ptr<Statement> Parser::filter_block(int line) {
  auto node = std::make_unique<FilterBlock>(line);
  take();
  node->filter = filter(nullptr, true);
  node->body = statements_to("endfilter");
  return node;
}

std::unique_ptr<Statement> Parser::block_statement(int line) {
  auto node = std::make_unique<BlockStatement>(line);
  take();
  node->name = expect_any_name();
  node->scoped = skip_name("scoped");
  skip_name("required");
  node->body = statements_to("endblock");
  skip_name(node->name);
  return node;
}

std::unique_ptr<Statement> Parser::import_statement(const std::string& tag, int line) {
  auto node = std::make_unique<ImportStatement>(tag, line);
  take();
  expression();
  if (tag == "import") {
    expect_name("as");
    node->targets.push_back(name_target());
  } else if (tag == "from") {
    expect_name("import");
    do {
      auto imported = name_target();
      node->targets.push_back(skip_name("as") ? name_target() : std::move(imported));
    } while (skip_op(",") && current().kind == TokenKind::name);
  } else if (skip_name("ignore")) {
    expect_name("missing");
  }
  if ((is_name("with") || is_name("without")) && look().kind == TokenKind::name && look().text == "context") {
    take();
    take();
  }
  return node;
}

void Parser::print_statement(Body& out, int line) {
  take();
  bool first = true;
  while (current().kind != TokenKind::block_end) {
    if (!first) expect_op(",");
    first = false;
    out.push_back(std::make_unique<OutputStatement>(expression(), line));
  }
}

void Parser::loop_control(Body& out, const std::string& tag, int line) {
  take();
  if (loops_ == 0) fail(fmt::format("'{}' outside loop", tag), line);
  out.push_back(std::make_unique<Statement>(tag == "break" ? StatementKind::break_ : StatementKind::continue_, line));
}

}  // namespace adze::text::jinja
