// The expression half of the parser.
#include <algorithm>

#include "text/jinja/parser.hpp"

namespace adze::text::jinja {

void Parser::check_target(const Expr& expr) const {
  if (expr.kind == ExprKind::tuple) {
    for (const ExprPtr& item : static_cast<const Items&>(expr).items) check_target(*item);
    return;
  }
  if (expr.kind == ExprKind::namespace_ref) return;
  if (expr.kind == ExprKind::name) {
    const auto& id = static_cast<const Name&>(expr).id;
    if (id == "loop" && loops_ > 0) fail("Can't assign to special loop variable in for-loop target", expr.line);
    return;
  }
  fail(fmt::format("can't assign to '{}'", expr.kind == ExprKind::constant ? "const" : "expression"), expr.line);
}

ExprPtr Parser::target(std::string_view end, bool with_namespace) {
  ExprPtr node = tuple({.targets = true, .with_namespace = with_namespace, .end = end});
  check_target(*node);
  return node;
}

std::unique_ptr<Name> Parser::name_target() {
  const int line = current().line;
  std::string id = expect_any_name();
  for (const std::string_view word : {"true", "false", "True", "False", "none", "None"})
    if (id == word) fail("can't assign to 'const'", line);
  return std::make_unique<Name>(std::move(id), line);
}

ExprPtr Parser::tuple(const TupleRules& rules) {
  const int line = current().line;
  auto node = std::make_unique<Items>(ExprKind::tuple, line);
  bool is_tuple = false;
  for (;;) {
    if (!node->items.empty()) expect_op(",");
    if (current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end || is_op(")") ||
        (!rules.end.empty() && is_name(rules.end)))
      break;
    node->items.push_back(rules.targets ? primary(rules.with_namespace) : expression(rules.with_condition));
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!node->items.empty()) return std::move(node->items.front());
    if (!rules.parenthesised)
      fail(fmt::format("Expected an expression, got '{}'", describe(current())), current().line);
  }
  for (const ExprPtr& item : node->items) node->height = std::max(node->height, item->height + 1);
  return raised(std::move(node), {});
}

ExprPtr Parser::expression(bool with_condition) {
  const Nesting nesting(*this);
  return with_condition ? condition() : logical_or();
}

ExprPtr Parser::condition() {
  ExprPtr value = logical_or();
  while (is_name("if")) {
    const int line = take().line;
    ExprPtr test = logical_or();
    ExprPtr otherwise;
    if (skip_name("else")) {
      const Nesting nesting(*this);
      otherwise = condition();
    }
    const std::initializer_list<const Expr*> children = {value.get(), test.get(), otherwise.get()};
    auto node = std::make_unique<Condition>(std::move(test), std::move(value), std::move(otherwise), line);
    value = raised(std::move(node), children);
  }
  return value;
}

ExprPtr Parser::logical_or() {
  ExprPtr left = logical_and();
  while (is_name("or")) {
    const int line = take().line;
    ExprPtr right = logical_and();
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    left =
        raised(std::make_unique<Binary>(ExprKind::logical_or, BinaryOp::add, std::move(left), std::move(right), line),
               children);
  }
  return left;
}

ExprPtr Parser::logical_and() {
  ExprPtr left = logical_not();
  while (is_name("and")) {
    const int line = take().line;
    ExprPtr right = logical_not();
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    left =
        raised(std::make_unique<Binary>(ExprKind::logical_and, BinaryOp::add, std::move(left), std::move(right), line),
               children);
  }
  return left;
}

ExprPtr Parser::logical_not() {
  if (!is_name("not")) return compare();
  const Nesting nesting(*this);
  const int line = take().line;
  ExprPtr operand = logical_not();
  const Expr* child = operand.get();
  return raised(std::make_unique<Unary>(ExprKind::logical_not, std::move(operand), line), {child});
}

ExprPtr Parser::compare() {
  ExprPtr first = sum();
  const int line = first->line;
  std::unique_ptr<Compare> node;
  static constexpr std::pair<std::string_view, CompareOp> kSigns[] = {
      {"==", CompareOp::equal},      {"!=", CompareOp::not_equal}, {"<", CompareOp::less},
      {"<=", CompareOp::less_equal}, {">", CompareOp::greater},    {">=", CompareOp::greater_equal}};
  for (;;) {
    const auto sign = std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& s) { return is_op(s.first); });
    CompareOp op = CompareOp::in;
    if (sign != std::end(kSigns)) {
      take();
      op = sign->second;
    } else if (is_name("not") && look().kind == TokenKind::name && look().text == "in") {
      take();
      take();
      op = CompareOp::not_in;
    } else if (!skip_name("in")) {
      break;
    }
    if (!node) node = std::make_unique<Compare>(std::move(first), line);
    node->rest.emplace_back(op, sum());
    node->height = std::max({node->height, node->first->height + 1, node->rest.back().second->height + 1});
  }
  if (!node) return first;
  return raised(std::move(node), {});
}

ExprPtr Parser::sum() {
  ExprPtr left = concat();
  while (is_op("+") || is_op("-")) {
    const Token sign = take();
    ExprPtr right = concat();
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    const BinaryOp op = sign.text == "+" ? BinaryOp::add : BinaryOp::subtract;
    left =
        raised(std::make_unique<Binary>(ExprKind::binary, op, std::move(left), std::move(right), sign.line), children);
  }
  return left;
}

ExprPtr Parser::concat() {
  ExprPtr first = product();
  if (!is_op("~")) return first;
  auto node = std::make_unique<Items>(ExprKind::concat, first->line);
  node->items.push_back(std::move(first));
  while (skip_op("~")) node->items.push_back(product());
  for (const ExprPtr& item : node->items) node->height = std::max(node->height, item->height + 1);
  return raised(std::move(node), {});
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const Token sign = take();
    ExprPtr right = power();
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    const BinaryOp op = sign.text == "*"    ? BinaryOp::multiply
                        : sign.text == "/"  ? BinaryOp::divide
                        : sign.text == "//" ? BinaryOp::floor_divide
                                            : BinaryOp::modulo;
    left =
        raised(std::make_unique<Binary>(ExprKind::binary, op, std::move(left), std::move(right), sign.line), children);
  }
  return left;
}

ExprPtr Parser::power() {
  ExprPtr left = unary();
  while (is_op("**")) {
    const int line = take().line;
    ExprPtr right = unary();
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    left = raised(std::make_unique<Binary>(ExprKind::binary, BinaryOp::power, std::move(left), std::move(right), line),
                  children);
  }
  return left;
}

ExprPtr Parser::unary(bool with_filter) {
  ExprPtr node;
  if (is_op("-") || is_op("+")) {
    const Nesting nesting(*this);
    const Token sign = take();
    ExprPtr operand = unary(false);
    const Expr* child = operand.get();
    node = raised(
        std::make_unique<Unary>(sign.text == "-" ? ExprKind::negate : ExprKind::plus, std::move(operand), sign.line),
        {child});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::string_constant() {
  const int line = current().line;
  auto node = std::make_unique<Constant>(Constant::Type::string, line);
  while (current().kind == TokenKind::string) node->string += take().text;
  node->number = constants_++;
  return node;
}

ExprPtr Parser::primary(bool with_namespace) {
  const int line = current().line;
  switch (current().kind) {
    case TokenKind::name: {
      std::string id = take().text;
      if (id == "true" || id == "True" || id == "false" || id == "False") {
        auto node = std::make_unique<Constant>(Constant::Type::boolean, line);
        node->boolean = id == "true" || id == "True";
        return node;
      }
      if (id == "none" || id == "None") return std::make_unique<Constant>(Constant::Type::none, line);
      if (with_namespace && skip_op(".")) return std::make_unique<NamespaceRef>(std::move(id), expect_any_name(), line);
      return std::make_unique<Name>(std::move(id), line);
    }
    case TokenKind::string: return string_constant();
    case TokenKind::integer: {
      auto node = std::make_unique<Constant>(Constant::Type::integer, line);
      node->integer = take().integer;
      node->number = constants_++;
      return node;
    }
    case TokenKind::real: {
      auto node = std::make_unique<Constant>(Constant::Type::real, line);
      node->real = take().real;
      return node;
    }
    default: break;
  }
  if (skip_op("(")) {
    ExprPtr node = tuple({.parenthesised = true});
    expect_op(")");
    return node;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  fail(fmt::format("unexpected '{}'", describe(current())), line);
}

ExprPtr Parser::list() {
  auto node = std::make_unique<Items>(ExprKind::list, take().line);
  while (!is_op("]")) {
    if (!node->items.empty()) expect_op(",");
    if (is_op("]")) break;
    node->items.push_back(expression());
    node->height = std::max(node->height, node->items.back()->height + 1);
  }
  expect_op("]");
  return raised(std::move(node), {});
}

ExprPtr Parser::dict() {
  auto node = std::make_unique<DictExpr>(take().line);
  while (!is_op("}")) {
    if (!node->items.empty()) expect_op(",");
    if (is_op("}")) break;
    ExprPtr key = expression();
    expect_op(":");
    ExprPtr value = expression();
    node->height = std::max({node->height, key->height + 1, value->height + 1});
    node->items.emplace_back(std::move(key), std::move(value));
  }
  expect_op("}");
  return raised(std::move(node), {});
}

ExprPtr Parser::postfix(ExprPtr node) {
  for (;;) {
    const Expr* child = node.get();
    if (is_op(".") || is_op("[")) {
      node = raised(subscript(std::move(node)), {child});
    } else if (is_op("(")) {
      const int line = current().line;
      ArgumentList list = arguments();
      const int height = list.height;
      node = std::make_unique<Call>(std::move(node), std::move(list), line);
      node->height = height + 1;
      node = raised(std::move(node), {child});
    } else {
      return node;
    }
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr node) {
  for (;;) {
    const Expr* child = node.get();
    if (is_op("|")) {
      node = filter(std::move(node));
    } else if (is_name("is")) {
      node = raised(test(std::move(node)), {child});
    } else if (is_op("(")) {
      const int line = current().line;
      ArgumentList list = arguments();
      const int height = list.height;
      node = std::make_unique<Call>(std::move(node), std::move(list), line);
      node->height = height + 1;
      node = raised(std::move(node), {child});
    } else {
      return node;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr node) {
  const Token token = take();
  if (token.text == ".") {
    if (current().kind == TokenKind::name) return std::make_unique<Attribute>(std::move(node), take().text, token.line);
    if (current().kind != TokenKind::integer) fail("expected name or number", current().line);
    auto key = std::make_unique<Constant>(Constant::Type::integer, current().line);
    key->integer = take().integer;
    key->number = constants_++;
    return std::make_unique<Item>(std::move(node), std::move(key), token.line);
  }
  auto keys = std::make_unique<Items>(ExprKind::tuple, token.line);
  while (!is_op("]")) {
    if (!keys->items.empty()) expect_op(",");
    keys->items.push_back(subscripted());
    keys->height = std::max(keys->height, keys->items.back()->height + 1);
  }
  expect_op("]");
  ExprPtr key = keys->items.size() == 1 ? std::move(keys->items[0]) : std::move(keys);
  const Expr* child = key.get();
  return raised(std::make_unique<Item>(std::move(node), std::move(key), token.line), {child});
}

ExprPtr Parser::subscripted() {
  auto slice = std::make_unique<Slice>(current().line);
  if (!is_op(":")) {
    ExprPtr first = expression();
    if (!is_op(":")) return first;
    slice->start = std::move(first);
  }
  expect_op(":");
  if (!is_op(":") && !is_op("]") && !is_op(",")) slice->stop = expression();
  if (skip_op(":") && !is_op("]") && !is_op(",")) slice->step = expression();
  const std::initializer_list<const Expr*> children = {slice->start.get(), slice->stop.get(), slice->step.get()};
  return raised(std::move(slice), children);
}

ArgumentList Parser::arguments() {
  ArgumentList out;
  const int line = current().line;
  const auto ensure = [&](bool valid) {
    if (!valid) fail("invalid syntax for function call expression", line);
  };
  expect_op("(");
  bool first = true;
  while (!is_op(")")) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
    const auto argument = [&] {
      ExprPtr value = expression();
      out.height = std::max(out.height, value->height);
      return value;
    };
    if (skip_op("*")) {
      ensure(!out.spread && !out.named_spread);
      out.spread = argument();
    } else if (skip_op("**")) {
      ensure(!out.named_spread);
      out.named_spread = argument();
    } else if (current().kind == TokenKind::name && look().kind == TokenKind::op && look().text == "=") {
      ensure(!out.named_spread);
      std::string name = take().text;
      take();
      for (const auto& [other, value] : out.named) {
        if (other == name) fail(fmt::format("keyword argument repeated: {}", name), line);
      }
      out.named.emplace_back(std::move(name), argument());
    } else {
      ensure(!out.spread && !out.named_spread && out.named.empty());
      out.positional.push_back(argument());
    }
  }
  expect_op(")");
  return out;
}

ExprPtr Parser::filter(ExprPtr node, bool start_inline) {
  while (is_op("|") || start_inline) {
    if (!start_inline) take();
    start_inline = false;
    const int line = current().line;
    std::string name = expect_any_name();
    while (skip_op(".")) name.append(".").append(expect_any_name());
    ArgumentList list;
    if (is_op("(")) list = arguments();
    const Expr* child = node.get();
    const int height = list.height;
    node = std::make_unique<FilterExpr>(std::move(node), std::move(name), std::move(list), line);
    node->height = height + 1;
    node = raised(std::move(node), {child});
  }
  return node;
}

ExprPtr Parser::test(ExprPtr node) {
  const int line = take().line;
  const bool negated = skip_name("not");
  std::string name = expect_any_name();
  while (skip_op(".")) name.append(".").append(expect_any_name());
  ArgumentList list;
  const TokenKind kind = current().kind;
  const bool argument_follows = kind == TokenKind::name || kind == TokenKind::string || kind == TokenKind::integer ||
                                kind == TokenKind::real || is_op("[") || is_op("{");
  if (is_op("(")) {
    list = arguments();
  } else if (argument_follows && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("You cannot chain multiple tests with is", line);
    list.positional.push_back(postfix(primary()));
  }
  const int height = std::max(list.height, list.positional.empty() ? 0 : list.positional[0]->height);
  ExprPtr out = std::make_unique<TestExpr>(std::move(node), std::move(name), std::move(list), line);
  out->height = height + 1;
  if (!negated) return out;
  const Expr* child = out.get();
  return raised(std::make_unique<Unary>(ExprKind::logical_not, std::move(out), line), {child});
}

}  // namespace adze::text::jinja
