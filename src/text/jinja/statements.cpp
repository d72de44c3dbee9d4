// Running statements, macros and loops.
#include <functional>

#include "base/limits.hpp"
#include "text/jinja/evaluator.hpp"

namespace adze::text::jinja {

// Enters a frame, and on the way out returns to the one before.
class Evaluator::Scoped {
 public:
  Scoped(Evaluator& evaluator, Value frame)
      : evaluator_(evaluator), before_(std::exchange(evaluator.frame_, std::move(frame))) {}
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
  ~Scoped() { evaluator_.frame_ = std::move(before_); }

 private:
  Evaluator& evaluator_;
  Value before_;
};

namespace {

// Sends output to another builder for a while.
class Capture {
 public:
  Capture(TextBuilder*& slot, TextBuilder& to) : slot_(slot), before_(std::exchange(slot, &to)) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { slot_ = before_; }

 private:
  TextBuilder*& slot_;
  TextBuilder* before_;
};

}  // namespace

Evaluator::Evaluator(const Template& tree)
    : tree_(tree),
      context_(tree.context_variables.size()),
      context_known_(tree.context_variables.size()),
      constants_(static_cast<std::size_t>(tree.constants)) {}

Evaluator::~Evaluator() = default;

void Evaluator::run(TextBuilder& out) {
  const Capture capture(out_, out);
  root_ = new_frame(tree_.scope, Value());
  const Scoped scoped(*this, root_);
  enter(frame(), tree_.scope);
  execute(tree_.body);
}

Value Evaluator::new_frame(const Scope& scope, const Value& outer) {
  auto* made = heap.make<FrameObject>(scope.loads.size());
  Value value(made);
  heap.charge(*made, scope.loads.size() * sizeof(Value));
  made->outer = outer;
  return value;
}

// Gives the variables of a scope the values they start with; parameters are the caller's business.
void Evaluator::enter(FrameObject& frame, const Scope& scope) {
  heap.step(1 + scope.loads.size() / 4);
  for (std::size_t slot = 0; slot < scope.loads.size(); ++slot) {
    const Load& load = scope.loads[slot];
    switch (load.from) {
      case Load::From::parameter: break;
      case Load::From::nothing: frame.values[slot] = Value(); break;
      case Load::From::context: frame.values[slot] = context_variable(load.binding.slot); break;
      case Load::From::outer: {
        const Value* around = &frame.outer;
        for (int up = load.binding.up; up > 1; --up) around = &around->as<FrameObject>().outer;
        frame.values[slot] = around->as<FrameObject>().values[static_cast<std::size_t>(load.binding.slot)];
        break;
      }
    }
  }
}

const Value& Evaluator::context_variable(int number) {
  const auto at = static_cast<std::size_t>(number);
  if (!context_known_[at]) {
    context_known_[at] = true;
    const std::string& id = tree_.context_variables[at];
    if (const auto found = variables_.find(id); found != variables_.end())
      context_[at] = found->second;
    else if (id == "strftime_now" && now == nullptr)
      context_[at] = Value();
    else if (const Function function = find_global(id); function != nullptr)
      context_[at] = Value(heap.make<FunctionObject>(id, function));
  }
  return context_[at];
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const auto& statement : body) {
    heap.step();
    const Flow flow = execute(*statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  const Depth depth(heap);
  try {
    switch (statement.kind) {
      case StatementKind::data:
        out_->append(static_cast<const DataStatement&>(statement).text, Origin::literal);
        check_output();
        return Flow::normal;
      case StatementKind::output:
        output(evaluate(*static_cast<const OutputStatement&>(statement).value));
        return Flow::normal;
      case StatementKind::if_: return execute_if(static_cast<const IfStatement&>(statement));
      case StatementKind::for_: return execute_for(static_cast<const ForStatement&>(statement));
      case StatementKind::set: {
        const auto& node = static_cast<const SetStatement&>(statement);
        assign(*node.target, evaluate(*node.value));
        return Flow::normal;
      }
      case StatementKind::set_block: execute_set_block(static_cast<const SetBlock&>(statement)); return Flow::normal;
      case StatementKind::macro: {
        const auto& node = static_cast<const MacroStatement&>(statement);
        assign(*node.target, heap.make<MacroObject>(node.callable, frame_));
        return Flow::normal;
      }
      case StatementKind::call_block: execute_call_block(static_cast<const CallBlock&>(statement)); return Flow::normal;
      case StatementKind::filter_block:
        execute_filter_block(static_cast<const FilterBlock&>(statement));
        return Flow::normal;
      case StatementKind::with: return execute_with(static_cast<const WithStatement&>(statement));
      case StatementKind::block: execute_block(static_cast<const BlockStatement&>(statement)); return Flow::normal;
      case StatementKind::break_: return Flow::break_loop;
      case StatementKind::continue_: return Flow::continue_loop;
      case StatementKind::import:
        raise("SecurityError", fmt::format("'{}' is not available: a chat template cannot load other templates",
                                           static_cast<const ImportStatement&>(statement).tag));
    }
  } catch (Failure& failure) {
    if (failure.line == 0) failure.line = statement.line;
    throw;
  }
  return Flow::normal;
}

void Evaluator::output(const Value& value) {
  append_str(*this, *out_, value);
  check_output();
}

void Evaluator::check_output() {
  if (out_->size() > limits::kTemplateMaxOutputBytes)
    raise_limit(fmt::format("the chat template writes more than {} MiB", limits::kTemplateMaxOutputBytes >> 20));
}

Evaluator::Flow Evaluator::execute_if(const IfStatement& node) {
  for (const auto& [condition, body] : node.branches)
    if (truthy(*this, evaluate(*condition))) return execute(body);
  return execute(node.otherwise);
}

Evaluator::Flow Evaluator::execute_for(const ForStatement& node) {
  const Value iterable = evaluate(*node.iterable);
  const Value outer = frame_;  // which the loop replaces by its own
  return loop_over(node, iterable, outer, 0);
}

namespace {

// The items of a for with an `if`: asked for one by one, because the body may change what the condition sees.
struct FilteredItems : IteratorObject {
  using Accepts = std::function<bool(const Value&)>;
  FilteredItems(Value i, Accepts a) : IteratorObject("generator"), items(std::move(i)), accepts(std::move(a)) {}
  void drop() override {
    items = Value();
    accepts = nullptr;
  }
  bool next(Runtime& rt, Value& out) override {
    while (items.as<IteratorObject>().next(rt, out))
      if (accepts(out)) return true;
    return false;
  }
  Value items;
  Accepts accepts;
};

}  // namespace

// Runs a for statement over `iterable`; `outer` is the frame that the statement stands in.
Evaluator::Flow Evaluator::loop_over(const ForStatement& node, const Value& iterable, const Value& outer, int depth0) {
  Value over = iterable;
  Value items = iterate(*this, iterable);
  if (node.filter) {
    over = items = heap.make<FilteredItems>(items, [this, &node, outer](const Value& candidate) {
      const Scoped scoped(*this, new_frame(node.filter_scope, outer));
      enter(frame(), node.filter_scope);
      assign(*node.filter_target, candidate);
      return truthy(*this, evaluate(*node.filter));
    });
  }
  const Value loop_value(heap.make<LoopObject>(over, items, depth0));
  auto& loop = loop_value.as<LoopObject>();
  if (node.recursive) {
    loop.recursive = &node;
    loop.outer = outer;
  }
  bool ran = false;
  {
    const Scoped scoped(*this, Value(frame_));
    Value body_frame;
    while (loop.advance(*this)) {
      ran = true;
      heap.step();
      // A frame that nothing holds on to (no macro was defined in it) serves for the next round.
      if (body_frame.is_missing() || body_frame.object()->refs > 2) body_frame = new_frame(node.scope, outer);
      frame_ = body_frame;
      enter(frame(), node.scope);
      if (node.loop_slot >= 0) frame().values[static_cast<std::size_t>(node.loop_slot)] = loop_value;
      assign(*node.target, loop.current);
      if (execute(node.body) == Flow::break_loop) break;
    }
  }
  if (!ran && !node.otherwise.empty()) {
    const Scoped scoped(*this, new_frame(node.otherwise_scope, outer));
    enter(frame(), node.otherwise_scope);
    return execute(node.otherwise);
  }
  return Flow::normal;
}

void Evaluator::execute_set_block(const SetBlock& node) {
  TextBuilder text(*this);
  Value value;
  {
    const Scoped scoped(*this, new_frame(node.scope, frame_));
    enter(frame(), node.scope);
    {
      const Capture capture(out_, text);
      if (execute(node.body) != Flow::normal) raise("TemplateRuntimeError", "break or continue inside a set block");
    }
    value = text.finish();
    if (node.filter) value = filter(static_cast<const FilterExpr&>(*node.filter), &value);
  }
  assign(*node.target, std::move(value));
}

void Evaluator::execute_filter_block(const FilterBlock& node) {
  TextBuilder text(*this);
  const Value outer = frame_;
  const Scoped scoped(*this, new_frame(node.scope, outer));
  enter(frame(), node.scope);
  {
    const Capture capture(out_, text);
    if (execute(node.body) != Flow::normal) raise("TemplateRuntimeError", "break or continue inside a filter block");
  }
  const Value value = text.finish();
  const Value filtered = filter(static_cast<const FilterExpr&>(*node.filter), &value);
  if (!filtered.is_string())
    raise_type_error(fmt::format("sequence item 0: expected str instance, {} found", type_name(filtered)));
  output(filtered);
}

void Evaluator::execute_call_block(const CallBlock& node) {
  const Value caller(heap.make<MacroObject>(node.callable, frame_));
  if (node.call == nullptr)
    output(call(caller, {}));
  else
    output(call_expression(static_cast<const Call&>(*node.call), &caller));
}

Evaluator::Flow Evaluator::execute_with(const WithStatement& node) {
  Value inner = new_frame(node.scope, frame_);
  std::vector<Value> values;
  values.reserve(node.assignments.size());
  for (const auto& [target, value] : node.assignments) values.push_back(evaluate(*value));
  const Scoped scoped(*this, std::move(inner));
  enter(frame(), node.scope);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*node.assignments[i].first, std::move(values[i]));
  return execute(node.body);
}

void Evaluator::execute_block(const BlockStatement& node) {
  const Scoped scoped(*this, new_frame(node.scope, node.scoped ? frame_ : root_));
  enter(frame(), node.scope);
  execute(node.body);
}

// --- calls
// ----------------------------------------------------------------------------------------------------------------

Value Evaluator::call(const Value& callee, const Arguments& arguments) {
  const Depth depth(heap);
  heap.step();
  switch (callee.kind()) {
    case Kind::function: return callee.as<FunctionObject>().function(*this, arguments);
    case Kind::method: return callee.as<MethodObject>().method(*this, callee.as<MethodObject>().self, arguments);
    case Kind::macro: return call_macro(callee.as<MacroObject>(), arguments);
    case Kind::loop: return call_loop(callee.as<LoopObject>(), arguments);
    case Kind::joiner: {
      auto& joiner = callee.as<JoinerObject>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return make_string(*this, "", Origin::literal);
    }
    case Kind::undefined: raise_undefined(*this, callee);
    default: raise_type_error(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

namespace {

class CallDepth {
 public:
  explicit CallDepth(int& calls) : calls_(calls) {
    if (++calls_ > limits::kTemplateMaxDepth) {
      --calls_;
      raise_limit(fmt::format("the chat template calls macros more than {} levels deep", limits::kTemplateMaxDepth));
    }
  }
  CallDepth(const CallDepth&) = delete;
  CallDepth& operator=(const CallDepth&) = delete;
  ~CallDepth() { --calls_; }

 private:
  int& calls_;
};

}  // namespace

Value Evaluator::call_macro(const MacroObject& macro, const Arguments& arguments) {
  const CallDepth call_depth(calls_);
  const Callable& callable = macro.callable;
  const Value kept(const_cast<MacroObject*>(&macro));
  const std::size_t count = callable.parameters.size();
  const std::string shown = callable.name.empty() ? "None" : fmt::format("'{}'", callable.name);
  const Scoped scoped(*this, new_frame(callable.scope, macro.frame));
  enter(frame(), callable.scope);
  FrameObject& inner = frame();
  std::vector<std::pair<std::string, Value>> named = arguments.named;
  const auto pop = [&](const std::string& name) {
    for (auto it = named.begin(); it != named.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      named.erase(it);
      return value;
    }
    return Value();
  };
  bool found_caller = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Name& parameter = *callable.parameters[i];
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = pop(parameter.id);
      found_caller |= parameter.id == "caller";
    }
    inner.values[static_cast<std::size_t>(parameter.binding.slot)] = std::move(value);
  }
  if (arguments.positional.size() >= count)
    for (const auto& parameter : callable.parameters) found_caller |= parameter->id == "caller";
  if (callable.uses_caller && !found_caller && callable.caller_slot >= 0) {
    Value caller = pop("caller");
    if (caller.is_missing() || caller.is_none()) caller = make_undefined_hint(*this, "No caller defined");
    inner.values[static_cast<std::size_t>(callable.caller_slot)] = std::move(caller);
  }
  if (callable.kwargs_slot >= 0) {
    const Value kwargs(heap.make<DictObject>());
    for (auto& [name, value] : named)
      kwargs.as<DictObject>().set(*this, make_string(*this, name, Origin::literal), std::move(value));
    inner.values[static_cast<std::size_t>(callable.kwargs_slot)] = kwargs;
  } else if (!named.empty()) {
    if (named.front().first == "caller")
      raise_type_error(
          fmt::format("macro {} was invoked with two values for the special caller argument. This is most "
                      "likely a bug.",
                      shown));
    raise_type_error(fmt::format("macro {} takes no keyword argument '{}'", shown, named.front().first));
  }
  if (callable.varargs_slot >= 0) {
    std::vector<Value> rest;
    for (std::size_t i = count; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
    inner.values[static_cast<std::size_t>(callable.varargs_slot)] = new_tuple(*this, std::move(rest));
  } else if (arguments.positional.size() > count) {
    raise_type_error(fmt::format("macro {} takes not more than {} argument(s)", shown, count));
  }
  const std::size_t first_default = count - callable.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto slot = static_cast<std::size_t>(callable.parameters[i]->binding.slot);
    if (!inner.values[slot].is_missing()) continue;
    inner.values[slot] =
        i >= first_default
            ? evaluate(*callable.defaults[i - first_default])
            : make_undefined_hint(*this, fmt::format("parameter '{}' was not provided", callable.parameters[i]->id));
  }
  TextBuilder text(*this);
  const Capture capture(out_, text);
  execute(callable.body);
  return text.finish();
}

// loop(items): the body of a recursive loop, for inner items.
Value Evaluator::call_loop(LoopObject& loop, const Arguments& arguments) {
  const Bound bound("loop", arguments, {"iterable"}, 1);
  if (loop.recursive == nullptr)
    raise_type_error("The loop must have the 'recursive' marker to be called recursively.");
  const CallDepth call_depth(calls_);
  TextBuilder text(*this);
  const Capture capture(out_, text);
  loop_over(*loop.recursive, *bound[0], loop.outer, loop.depth0 + 1);
  return text.finish();
}

}  // namespace adze::text::jinja
