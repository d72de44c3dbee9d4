// Evaluating expressions.
#include "base/limits.hpp"
#include "text/jinja/evaluator.hpp"

namespace adze::text::jinja {

Value Evaluator::evaluate(const Expr& expr) {
  const Depth depth(heap);
  heap.step();
  try {
    return evaluate_kind(expr);
  } catch (Failure& failure) {
    if (failure.line == 0) failure.line = expr.line;
    throw;
  }
}

Value Evaluator::evaluate_kind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::constant: return constant(static_cast<const Constant&>(expr));
    case ExprKind::name: return name(static_cast<const Name&>(expr));
    case ExprKind::list: return new_list(*this, evaluate_all(static_cast<const Items&>(expr).items));
    case ExprKind::tuple: return new_tuple(*this, evaluate_all(static_cast<const Items&>(expr).items));
    case ExprKind::dict: return dict(static_cast<const DictExpr&>(expr));
    case ExprKind::attribute: {
      const auto& node = static_cast<const Attribute&>(expr);
      return get_attribute(*this, evaluate(*node.object), node.name);
    }
    case ExprKind::item: return item(static_cast<const Item&>(expr));
    case ExprKind::call: return call_expression(static_cast<const Call&>(expr), nullptr);
    case ExprKind::filter: return filter(static_cast<const FilterExpr&>(expr), nullptr);
    case ExprKind::test: return Value::boolean(test(static_cast<const TestExpr&>(expr)));
    case ExprKind::binary: {
      const auto& node = static_cast<const Binary&>(expr);
      const Value left = evaluate(*node.left);
      return binary(*this, node.op, left, evaluate(*node.right));
    }
    case ExprKind::negate: return negate(*this, evaluate(*static_cast<const Unary&>(expr).operand));
    case ExprKind::plus: return plus(*this, evaluate(*static_cast<const Unary&>(expr).operand));
    case ExprKind::logical_not:
      return Value::boolean(!truthy(*this, evaluate(*static_cast<const Unary&>(expr).operand)));
    case ExprKind::logical_and: {
      const auto& node = static_cast<const Binary&>(expr);
      Value left = evaluate(*node.left);
      return truthy(*this, left) ? evaluate(*node.right) : left;
    }
    case ExprKind::logical_or: {
      const auto& node = static_cast<const Binary&>(expr);
      Value left = evaluate(*node.left);
      return truthy(*this, left) ? left : evaluate(*node.right);
    }
    case ExprKind::concat: return concat(static_cast<const Items&>(expr));
    case ExprKind::compare: return Value::boolean(compare(static_cast<const Compare&>(expr)));
    case ExprKind::condition: return condition(static_cast<const Condition&>(expr));
    case ExprKind::slice:
    case ExprKind::namespace_ref: break;
  }
  raise("TemplateRuntimeError", "this expression has no value of its own");
}

Value Evaluator::constant(const Constant& node) {
  switch (node.type) {
    case Constant::Type::none: return Value::none();
    case Constant::Type::boolean: return Value::boolean(node.boolean);
    case Constant::Type::real: return Value::real(node.real);
    case Constant::Type::integer:
    case Constant::Type::string: break;
  }
  Value& made = constants_[static_cast<std::size_t>(node.number)];
  if (made.is_missing())
    made = node.type == Constant::Type::string ? make_string(*this, node.string, Origin::literal)
                                               : make_integer(*this, node.integer);
  return made;
}

const Value& Evaluator::look_up(const Binding& binding) {
  if (binding.up == Binding::kContext) return context_variable(binding.slot);
  const Value* around = &frame_;
  for (int up = binding.up; up > 0; --up) around = &around->as<FrameObject>().outer;
  return around->as<FrameObject>().values[static_cast<std::size_t>(binding.slot)];
}

Value Evaluator::name(const Name& node) {
  const Value& value = look_up(node.binding);
  return value.is_missing() ? make_undefined_variable(*this, node.id) : value;
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExprPtr>& items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& e : items) values.push_back(evaluate(*e));
  return values;
}

Value Evaluator::dict(const DictExpr& node) {
  const Value made(heap.make<DictObject>());
  for (const auto& [key, value] : node.items) {
    Value k = evaluate(*key);
    made.as<DictObject>().set(*this, std::move(k), evaluate(*value));
  }
  return made;
}

Value Evaluator::item(const Item& node) {
  const Value object = evaluate(*node.object);
  if (node.key->kind != ExprKind::slice) return get_item(*this, object, evaluate(*node.key));
  const auto& slice = static_cast<const Slice&>(*node.key);
  const auto part = [&](const ExprPtr& e) { return e ? evaluate(*e) : Value::none(); };
  const Value start = part(slice.start);
  const Value stop = part(slice.stop);
  return get_slice(*this, object, start, stop, part(slice.step));
}

Arguments Evaluator::evaluate_arguments(const ArgumentList& list) {
  Arguments out;
  out.positional = evaluate_all(list.positional);
  for (const auto& [name, value] : list.named) out.named.emplace_back(name, evaluate(*value));
  if (list.spread) {
    const Value spread = as_sequence(*this, evaluate(*list.spread));
    if (items_of(spread).size() > static_cast<std::size_t>(limits::kTemplateMaxArguments))
      raise_limit(fmt::format("a call in the chat template has more than {} arguments", limits::kTemplateMaxArguments));
    out.positional.insert(out.positional.end(), items_of(spread).begin(), items_of(spread).end());
  }
  if (list.named_spread) {
    const Value named = evaluate(*list.named_spread);
    if (!named.is(Kind::dict))
      raise_type_error(fmt::format("argument after ** must be a mapping, not {}", type_name(named)));
    for (const auto& [key, value] : named.as<DictObject>().entries) {
      if (!key.is_string()) raise_type_error("keywords must be strings");
      out.named.emplace_back(key.as<StringObject>().text, value);
    }
  }
  return out;
}

Value Evaluator::call_expression(const Call& node, const Value* caller) {
  const Value callee = evaluate(*node.callee);
  Arguments arguments = evaluate_arguments(node.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return call(callee, arguments);
}

// `input`: the value to filter when it is not an expression but a block's text.
Value Evaluator::filter(const FilterExpr& node, const Value* input) {
  Value value;
  if (node.value == nullptr)
    value = *input;
  else if (node.value->kind == ExprKind::filter)  // the chain of a filter block ends in the block's text
    value = filter(static_cast<const FilterExpr&>(*node.value), input);
  else
    value = evaluate(*node.value);
  const Arguments arguments = evaluate_arguments(node.arguments);
  if (node.function == nullptr) raise("TemplateRuntimeError", fmt::format("No filter named '{}' found.", node.name));
  return node.function(*this, value, arguments);
}

bool Evaluator::test(const TestExpr& node) {
  const Value value = evaluate(*node.value);
  const Arguments arguments = evaluate_arguments(node.arguments);
  if (node.function == nullptr) raise("TemplateRuntimeError", fmt::format("No test named '{}' found.", node.name));
  return node.function(*this, value, arguments);
}

Value Evaluator::condition(const Condition& node) {
  if (truthy(*this, evaluate(*node.test))) return evaluate(*node.value);
  if (node.otherwise) return evaluate(*node.otherwise);
  return make_undefined_hint(
      *this, fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.",
                         node.line));
}

Value Evaluator::concat(const Items& node) {
  const std::vector<Value> values = evaluate_all(node.items);
  TextBuilder out(*this);
  for (const Value& value : values) append_str(*this, out, value);
  return out.finish();
}

bool Evaluator::compare(const Compare& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    bool holds = false;
    switch (op) {
      case CompareOp::equal: holds = equal(*this, left, right); break;
      case CompareOp::not_equal: holds = !equal(*this, left, right); break;
      case CompareOp::less: holds = ordered(*this, left, Order::less, right); break;
      case CompareOp::less_equal: holds = ordered(*this, left, Order::less_equal, right); break;
      case CompareOp::greater: holds = ordered(*this, left, Order::greater, right); break;
      case CompareOp::greater_equal: holds = ordered(*this, left, Order::greater_equal, right); break;
      case CompareOp::in: holds = contains(*this, right, left); break;
      case CompareOp::not_in: holds = !contains(*this, right, left); break;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

void Evaluator::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::name) {
    frame().values[static_cast<std::size_t>(static_cast<const Name&>(target).binding.slot)] = std::move(value);
    return;
  }
  if (target.kind == ExprKind::namespace_ref) {
    const auto& ref = static_cast<const NamespaceRef&>(target);
    const Value& holder = look_up(ref.binding);
    if (!holder.is(Kind::name_space)) raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    holder.as<NamespaceObject>().set(*this, make_string(*this, ref.attribute, Origin::literal), std::move(value));
    return;
  }
  const auto& targets = static_cast<const Items&>(target).items;
  if (!is_iterable(value)) raise_type_error(fmt::format("cannot unpack non-iterable {} object", type_name(value)));
  const Value sequence = as_sequence(*this, value);
  const std::vector<Value>& values = items_of(sequence);
  if (values.size() > targets.size())
    raise_value_error(fmt::format("too many values to unpack (expected {})", targets.size()));
  if (values.size() < targets.size())
    raise_value_error(fmt::format("not enough values to unpack (expected {}, got {})", targets.size(), values.size()));
  for (std::size_t i = 0; i < targets.size(); ++i) assign(*targets[i], values[i]);
}

}  // namespace adze::text::jinja
