// The syntax tree of a template. Built by the parser, names bound by scopes.cpp, then never changed: a tree is shared
// by any number of renders.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/big_int.hpp"
#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {

// --- scopes
// ------------------------------------------------------------------------------------------------------------

// Where a name lives: `slot` of the scope `up` levels out, or a variable of the render, or both nowhere.
struct Binding {
  static constexpr int kContext = -1;
  int up = kContext;
  int slot = 0;  // or the number of the context variable
};

// What a variable of a scope holds when the scope is entered.
struct Load {
  enum class From : std::uint8_t { parameter, context, outer, nothing };
  From from = From::nothing;
  Binding binding;  // context and outer; relative to the scope itself
};

struct Scope {
  std::vector<Load> loads;  // one per slot
};

// --- expressions
// -------------------------------------------------------------------------------------------------------

enum class ExprKind : std::uint8_t {
  constant,
  name,
  namespace_ref,
  list,
  tuple,
  dict,
  attribute,
  item,
  slice,
  call,
  filter,
  test,
  binary,
  negate,
  plus,
  logical_not,
  logical_and,
  logical_or,
  concat,
  compare,
  condition,
};

struct Expr {
  Expr(ExprKind k, int l) : kind(k), line(l) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
  int height = 1;  // longest way down
};
using ExprPtr = std::unique_ptr<Expr>;

struct Constant : Expr {
  enum class Type : std::uint8_t { none, boolean, integer, real, string };
  Constant(Type t, int l) : Expr(ExprKind::constant, l), type(t) {}
  Type type;
  bool boolean = false;
  BigInt integer;
  double real = 0;
  std::string string;
  int number = -1;  // of strings and integers: the render makes each value once
};

struct Name : Expr {
  Name(std::string i, int l) : Expr(ExprKind::name, l), id(std::move(i)) {}
  std::string id;
  Binding binding;
};

struct NamespaceRef : Expr {  // ns.attribute as a target of set
  NamespaceRef(std::string i, std::string a, int l)
      : Expr(ExprKind::namespace_ref, l), id(std::move(i)), attribute(std::move(a)) {}
  std::string id;
  std::string attribute;
  Binding binding;
};

struct Items : Expr {  // list, tuple, concat; and, or, compare keep their operands here too
  Items(ExprKind k, int l) : Expr(k, l) {}
  std::vector<ExprPtr> items;
};

struct DictExpr : Expr {
  explicit DictExpr(int l) : Expr(ExprKind::dict, l) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};

struct Attribute : Expr {
  Attribute(ExprPtr o, std::string n, int l) : Expr(ExprKind::attribute, l), object(std::move(o)), name(std::move(n)) {}
  ExprPtr object;
  std::string name;
};

struct Item : Expr {
  Item(ExprPtr o, ExprPtr k, int l) : Expr(ExprKind::item, l), object(std::move(o)), key(std::move(k)) {}
  ExprPtr object;
  ExprPtr key;
};

struct Slice : Expr {  // the key of an Item; parts may be null
  explicit Slice(int l) : Expr(ExprKind::slice, l) {}
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};

struct ArgumentList {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread;        // *x
  ExprPtr named_spread;  // **x
  int height = 0;        // of the highest argument
};

struct Call : Expr {
  Call(ExprPtr c, ArgumentList a, int l) : Expr(ExprKind::call, l), callee(std::move(c)), arguments(std::move(a)) {}
  ExprPtr callee;
  ArgumentList arguments;
};

struct FilterExpr : Expr {
  FilterExpr(ExprPtr v, std::string n, ArgumentList a, int l)
      : Expr(ExprKind::filter, l), value(std::move(v)), name(std::move(n)), arguments(std::move(a)) {}
  ExprPtr value;  // null: the body of a filter block or a set block
  std::string name;
  ArgumentList arguments;
  Filter function = nullptr;  // null: unknown, an error when reached
};

struct TestExpr : Expr {
  TestExpr(ExprPtr v, std::string n, ArgumentList a, int l)
      : Expr(ExprKind::test, l), value(std::move(v)), name(std::move(n)), arguments(std::move(a)) {}
  ExprPtr value;
  std::string name;
  ArgumentList arguments;
  Test function = nullptr;
};

struct Unary : Expr {  // negate, plus, logical_not
  Unary(ExprKind k, ExprPtr o, int l) : Expr(k, l), operand(std::move(o)) {}
  ExprPtr operand;
};

struct Binary : Expr {  // binary (with op), logical_and, logical_or
  Binary(ExprKind k, BinaryOp o, ExprPtr a, ExprPtr b, int l)
      : Expr(k, l), op(o), left(std::move(a)), right(std::move(b)) {}
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};

enum class CompareOp : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
struct Compare : Expr {
  explicit Compare(ExprPtr f, int l) : Expr(ExprKind::compare, l), first(std::move(f)) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};

struct Condition : Expr {  // value if test else otherwise
  Condition(ExprPtr t, ExprPtr v, ExprPtr o, int l)
      : Expr(ExprKind::condition, l), test(std::move(t)), value(std::move(v)), otherwise(std::move(o)) {}
  ExprPtr test;
  ExprPtr value;
  ExprPtr otherwise;  // may be null
};

// --- statements
// --------------------------------------------------------------------------------------------------------

enum class StatementKind : std::uint8_t {
  data,
  output,
  if_,
  for_,
  set,
  set_block,
  macro,
  call_block,
  filter_block,
  with,
  block,
  break_,
  continue_,
  import,
};

struct Statement {
  Statement(StatementKind k, int l) : kind(k), line(l) {}
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};
using Body = std::vector<std::unique_ptr<Statement>>;

struct DataStatement : Statement {
  DataStatement(std::string t, int l) : Statement(StatementKind::data, l), text(std::move(t)) {}
  std::string text;
};

struct OutputStatement : Statement {
  OutputStatement(ExprPtr v, int l) : Statement(StatementKind::output, l), value(std::move(v)) {}
  ExprPtr value;
};

struct IfStatement : Statement {
  explicit IfStatement(int l) : Statement(StatementKind::if_, l) {}
  std::vector<std::pair<ExprPtr, Body>> branches;  // if, elif ...
  Body otherwise;
};

struct ForStatement : Statement {
  explicit ForStatement(int l) : Statement(StatementKind::for_, l) {}
  ExprPtr target;
  ExprPtr iterable;
  ExprPtr filter;         // `if` of the for; may be null
  ExprPtr filter_target;  // the target again, bound in the filter's scope
  bool recursive = false;
  Body body;
  Body otherwise;
  Scope scope;
  Scope filter_scope;
  Scope otherwise_scope;
  int loop_slot = -1;  // of `loop` in the body's scope; -1: not used
};

struct SetStatement : Statement {
  SetStatement(ExprPtr t, ExprPtr v, int l)
      : Statement(StatementKind::set, l), target(std::move(t)), value(std::move(v)) {}
  ExprPtr target;
  ExprPtr value;
};

struct SetBlock : Statement {
  explicit SetBlock(int l) : Statement(StatementKind::set_block, l) {}
  ExprPtr target;
  ExprPtr filter;  // may be null
  Body body;
  Scope scope;
};

// What macros and call blocks have in common.
struct Callable {
  std::string name;  // empty: a call block's body
  std::vector<std::unique_ptr<Name>> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  Scope scope;
  int caller_slot = -1;  // the special names, when the body uses them
  int kwargs_slot = -1;
  int varargs_slot = -1;
  bool uses_caller = false;
};

struct MacroStatement : Statement {
  explicit MacroStatement(int l) : Statement(StatementKind::macro, l) {}
  std::unique_ptr<Name> target;
  Callable callable;
};

struct CallBlock : Statement {
  explicit CallBlock(int l) : Statement(StatementKind::call_block, l) {}
  ExprPtr call;  // a Call; null: `generation`, which renders its body
  Callable callable;
};

struct FilterBlock : Statement {
  explicit FilterBlock(int l) : Statement(StatementKind::filter_block, l) {}
  ExprPtr filter;
  Body body;
  Scope scope;
};

struct WithStatement : Statement {
  explicit WithStatement(int l) : Statement(StatementKind::with, l) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;
  Body body;
  Scope scope;
};

struct BlockStatement : Statement {
  explicit BlockStatement(int l) : Statement(StatementKind::block, l) {}
  std::string name;
  bool scoped = false;
  Body body;
  Scope scope;
};

struct ImportStatement : Statement {  // include, import, from, extends: refused when reached
  ImportStatement(std::string t, int l) : Statement(StatementKind::import, l), tag(std::move(t)) {}
  std::string tag;
  std::vector<std::unique_ptr<Name>> targets;  // names it would define
};

struct Template {
  std::string source;
  Body body;
  Scope scope;
  int constants = 0;                           // how many are numbered
  std::vector<std::string> context_variables;  // by number
};

// Parses and binds. Raises Failure with the line.
std::shared_ptr<const Template> parse_template(std::string source);

}  // namespace adze::text::jinja
