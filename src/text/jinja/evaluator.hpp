// Runs a template's tree against variables. One evaluator per render; the tree is shared and not changed.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.hpp"
#include "text/jinja/loop.hpp"
#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {

// The variables of one scope while it runs. Macros hold on to the frame they were defined in.
struct FrameObject : Object {
  explicit FrameObject(std::size_t slots) : Object(Kind::frame), values(slots) {}
  void drop() override {
    values.clear();
    outer = Value();
  }
  std::vector<Value> values;
  Value outer;  // the frame around; missing for the template's own
};

struct MacroObject : Object {
  MacroObject(const Callable& c, Value f) : Object(Kind::macro), callable(c), frame(std::move(f)) {}
  void drop() override { frame = Value(); }
  const Callable& callable;
  Value frame;  // where it was defined
};

class Evaluator : public Runtime {
 public:
  explicit Evaluator(const Template& tree);
  ~Evaluator() override;
  // Declares a variable of the render.
  void define(std::string name, Value value) { variables_.insert_or_assign(std::move(name), std::move(value)); }
  // Runs the template into `out`. Raises Failure, with its line.
  void run(TextBuilder& out);

  Value call(const Value& callee, const Arguments& arguments) override;

 private:
  enum class Flow { normal, break_loop, continue_loop };
  class Scoped;

  // statements
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_if(const IfStatement& node);
  Flow execute_for(const ForStatement& node);
  Flow loop_over(const ForStatement& node, const Value& iterable, const Value& outer, int depth0);
  void execute_set_block(const SetBlock& node);
  void execute_call_block(const CallBlock& node);
  void execute_filter_block(const FilterBlock& node);
  Flow execute_with(const WithStatement& node);
  void execute_block(const BlockStatement& node);
  void output(const Value& value);
  void check_output();

  // expressions; the line of the innermost expression that fails is recorded on the way
  Value evaluate(const Expr& expr);
  Value evaluate_kind(const Expr& expr);
  Value constant(const Constant& node);
  Value name(const Name& node);
  Value call_expression(const Call& node, const Value* caller);
  Value filter(const FilterExpr& node, const Value* input);
  Value condition(const Condition& node);
  Value concat(const Items& node);
  Value dict(const DictExpr& node);
  Value item(const Item& node);
  bool test(const TestExpr& node);
  bool compare(const Compare& node);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& items);
  Arguments evaluate_arguments(const ArgumentList& list);

  // variables
  const Value& look_up(const Binding& binding);
  const Value& context_variable(int number);
  Value new_frame(const Scope& scope, const Value& outer);
  void enter(FrameObject& frame, const Scope& scope);
  void assign(const Expr& target, Value value);
  FrameObject& frame() { return frame_.as<FrameObject>(); }

  Value call_macro(const MacroObject& macro, const Arguments& arguments);
  Value call_loop(LoopObject& loop, const Arguments& arguments);

  const Template& tree_;
  std::map<std::string, Value, std::less<>> variables_;
  std::vector<Value> context_;  // by number; looked up once
  std::vector<bool> context_known_;
  std::vector<Value> constants_;  // by number; made once
  Value root_;                    // the template's own frame
  Value frame_;                   // the current one
  TextBuilder* out_ = nullptr;    // where output goes now
  int calls_ = 0;                 // macro and loop calls under way
};

}  // namespace adze::text::jinja
