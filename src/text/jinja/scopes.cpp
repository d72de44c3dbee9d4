// Binds names to slots of scopes, by the rules of Jinja's own compiler.
//
// A scope is a frame at run time: the template, a loop body, a macro ... (an `if` has none of its own). Each scope is
// analysed as a whole before it runs. A name that is only read, and that no scope around knows, is read from the
// render's variables. A name that is assigned gets a slot; if a scope around has that name, the slot starts with its
// value, so that assignments inside a loop are lost after each round. And a name that is assigned outside any `if`
// before it is read starts empty, even when the render has a variable of that name; assigned inside an `if`, it starts
// with that variable. Getting this right is why there is an analysis and not a plain chain of dictionaries.
#include <algorithm>
#include <map>
#include <set>

#include "text/jinja/ast.hpp"
#include "text/jinja/parser.hpp"
#include "text/jinja/unicode.hpp"

namespace adze::text::jinja {
namespace {

// Calls f on every Name and NamespaceRef below, in the order of evaluation or close to it.
template <class F>
void each_name(Expr* expr, const F& f);

template <class F>
void each_name(ArgumentList& list, const F& f) {
  for (ExprPtr& e : list.positional) each_name(e.get(), f);
  for (auto& [name, e] : list.named) each_name(e.get(), f);
  each_name(list.spread.get(), f);
  each_name(list.named_spread.get(), f);
}

// Calls f on every direct child; lists of arguments included.
template <class F>
void each_child(Expr& expr, const F& f) {
  const auto list = [&](ArgumentList& arguments) {
    for (ExprPtr& e : arguments.positional) f(e.get());
    for (auto& [name, e] : arguments.named) f(e.get());
    f(arguments.spread.get());
    f(arguments.named_spread.get());
  };
  switch (expr.kind) {
    case ExprKind::constant:
    case ExprKind::name:
    case ExprKind::namespace_ref: return;
    case ExprKind::list:
    case ExprKind::tuple:
    case ExprKind::concat:
      for (ExprPtr& e : static_cast<Items&>(expr).items) f(e.get());
      return;
    case ExprKind::dict:
      for (auto& [key, value] : static_cast<DictExpr&>(expr).items) {
        f(key.get());
        f(value.get());
      }
      return;
    case ExprKind::attribute: f(static_cast<Attribute&>(expr).object.get()); return;
    case ExprKind::item:
      f(static_cast<Item&>(expr).object.get());
      f(static_cast<Item&>(expr).key.get());
      return;
    case ExprKind::slice:
      f(static_cast<Slice&>(expr).start.get());
      f(static_cast<Slice&>(expr).stop.get());
      f(static_cast<Slice&>(expr).step.get());
      return;
    case ExprKind::call:
      f(static_cast<Call&>(expr).callee.get());
      list(static_cast<Call&>(expr).arguments);
      return;
    case ExprKind::filter:
      f(static_cast<FilterExpr&>(expr).value.get());
      list(static_cast<FilterExpr&>(expr).arguments);
      return;
    case ExprKind::test:
      f(static_cast<TestExpr&>(expr).value.get());
      list(static_cast<TestExpr&>(expr).arguments);
      return;
    case ExprKind::negate:
    case ExprKind::plus:
    case ExprKind::logical_not: f(static_cast<Unary&>(expr).operand.get()); return;
    case ExprKind::binary:
    case ExprKind::logical_and:
    case ExprKind::logical_or:
      f(static_cast<Binary&>(expr).left.get());
      f(static_cast<Binary&>(expr).right.get());
      return;
    case ExprKind::compare:
      f(static_cast<Compare&>(expr).first.get());
      for (auto& [op, e] : static_cast<Compare&>(expr).rest) f(e.get());
      return;
    case ExprKind::condition:
      f(static_cast<Condition&>(expr).value.get());
      f(static_cast<Condition&>(expr).test.get());
      f(static_cast<Condition&>(expr).otherwise.get());
      return;
  }
}

template <class F>
void each_name(Expr* expr, const F& f) {
  if (expr == nullptr) return;
  if (expr->kind == ExprKind::name || expr->kind == ExprKind::namespace_ref) {
    f(*expr);
    return;
  }
  each_child(*expr, [&](Expr* child) { each_name(child, f); });
}

const std::string& name_of(const Expr& expr) {
  return expr.kind == ExprKind::name ? static_cast<const Name&>(expr).id : static_cast<const NamespaceRef&>(expr).id;
}

// What is known of the names of one scope. Branches of an `if` analyse copies that share the scope.
class Symbols {
 public:
  Symbols(Scope& scope, Symbols* parent, Template& tree)
      : scope_(&scope), parent_(parent), tree_(&tree), slots_(std::make_shared<std::map<std::string, int>>()) {}

  bool find(const std::string& name, Binding& out) const {
    int up = 0;
    for (const Symbols* s = this; s != nullptr; s = s->parent_, ++up) {
      const auto found = s->known_.find(name);
      if (found == s->known_.end()) continue;
      out = {up, found->second};
      return true;
    }
    return false;
  }

  void load(const std::string& name) {
    Binding ignored;
    if (!find(name, ignored)) define(name, from_context(name));
  }

  void store(const std::string& name) {
    stores_.insert(name);
    if (known_.contains(name)) return;
    Load outer;
    define(name, from_outside(name, outer) ? outer : Load{});
  }

  int parameter(const std::string& name) {
    stores_.insert(name);
    return define(name, Load{Load::From::parameter, {}});
  }

  // After an `if`: what a branch assigns keeps its former value where that branch is not taken.
  void merge(const std::vector<Symbols>& branches) {
    std::set<std::string> assigned;
    for (const Symbols& branch : branches)
      for (const std::string& name : branch.stores_)
        if (!stores_.contains(name)) assigned.insert(name);
    for (const Symbols& branch : branches) {
      known_.insert(branch.known_.begin(), branch.known_.end());
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const std::string& name : assigned) {
      Load outer;
      loads()[static_cast<std::size_t>(known_.at(name))] = from_outside(name, outer) ? outer : from_context(name);
    }
  }

  int context_number(const std::string& name) const {
    auto& names = tree_->context_variables;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<int>(found - names.begin());
    names.push_back(name);
    return static_cast<int>(names.size()) - 1;
  }

 private:
  std::vector<Load>& loads() const { return scope_->loads; }

  int define(const std::string& name, Load load) {
    const auto [entry, added] = slots_->try_emplace(name, static_cast<int>(loads().size()));
    if (added) loads().emplace_back();
    loads()[static_cast<std::size_t>(entry->second)] = load;
    known_[name] = entry->second;
    return entry->second;
  }

  Load from_context(const std::string& name) const {
    return Load{Load::From::context, {Binding::kContext, context_number(name)}};
  }

  bool from_outside(const std::string& name, Load& out) const {
    Binding binding;
    if (parent_ == nullptr || !parent_->find(name, binding)) return false;
    out = Load{Load::From::outer, {binding.up + 1, binding.slot}};
    return true;
  }

  Scope* scope_;
  Symbols* parent_;
  Template* tree_;
  std::shared_ptr<std::map<std::string, int>> slots_;  // every name that has a slot, in whichever branch
  std::map<std::string, int> known_;
  std::set<std::string> stores_;
};

// --- analysis: which names a scope reads and assigns
// -------------------------------------------------------------------

void read_names(Symbols& symbols, Expr* expr) {
  each_name(expr, [&](Expr& name) { symbols.load(name_of(name)); });
}

void assign_names(Symbols& symbols, Expr* target) {
  each_name(target, [&](Expr& name) {
    if (name.kind == ExprKind::name)
      symbols.store(name_of(name));
    else
      symbols.load(name_of(name));
  });
}

void declare_names(Symbols& symbols, Expr* target) {
  each_name(target, [&](Expr& name) { symbols.parameter(name_of(name)); });
}

void analyse(Symbols& symbols, Body& body);

void analyse_if(Symbols& symbols, IfStatement& node) {
  // As Jinja sees it there are three branches: the first, all the elifs together, and the else.
  std::vector<Symbols> branches;
  read_names(symbols, node.branches[0].first.get());
  branches.push_back(symbols);
  analyse(branches.back(), node.branches[0].second);
  branches.push_back(symbols);
  for (std::size_t i = 1; i < node.branches.size(); ++i) {
    Symbols& all = branches.back();
    read_names(all, node.branches[i].first.get());
    std::vector<Symbols> inner(3, all);
    analyse(inner[0], node.branches[i].second);
    all.merge(inner);
  }
  branches.push_back(symbols);
  analyse(branches.back(), node.otherwise);
  symbols.merge(branches);
}

void analyse(Symbols& symbols, Body& body) {
  for (auto& statement : body) {
    switch (statement->kind) {
      case StatementKind::data:
      case StatementKind::break_:
      case StatementKind::continue_:
      case StatementKind::block: break;
      case StatementKind::output: read_names(symbols, static_cast<OutputStatement&>(*statement).value.get()); break;
      case StatementKind::if_: analyse_if(symbols, static_cast<IfStatement&>(*statement)); break;
      case StatementKind::for_: read_names(symbols, static_cast<ForStatement&>(*statement).iterable.get()); break;
      case StatementKind::set:
        read_names(symbols, static_cast<SetStatement&>(*statement).value.get());
        assign_names(symbols, static_cast<SetStatement&>(*statement).target.get());
        break;
      case StatementKind::set_block: assign_names(symbols, static_cast<SetBlock&>(*statement).target.get()); break;
      case StatementKind::macro: symbols.store(static_cast<MacroStatement&>(*statement).target->id); break;
      case StatementKind::call_block: read_names(symbols, static_cast<CallBlock&>(*statement).call.get()); break;
      case StatementKind::filter_block: read_names(symbols, static_cast<FilterBlock&>(*statement).filter.get()); break;
      case StatementKind::with:
        for (auto& [target, value] : static_cast<WithStatement&>(*statement).assignments)
          read_names(symbols, value.get());
        break;
      case StatementKind::import:
        for (auto& target : static_cast<ImportStatement&>(*statement).targets) symbols.store(target->id);
        break;
    }
  }
}

// Which of `names` the body reads before assigning them, at any depth.
void find_free(Body& body, std::set<std::string>& names, std::set<std::string>& free);

void find_free(Expr* expr, const std::set<std::string>& names, std::set<std::string>& free) {
  each_name(expr, [&](Expr& name) {
    if (names.contains(name_of(name))) free.insert(name_of(name));
  });
}

void forget(Expr* target, std::set<std::string>& names) {
  each_name(target, [&](Expr& name) {
    if (name.kind == ExprKind::name) names.erase(name_of(name));
  });
}

void find_free(Callable& callable, std::set<std::string>& names, std::set<std::string>& free) {
  for (auto& parameter : callable.parameters) names.erase(parameter->id);
  for (auto& value : callable.defaults) find_free(value.get(), names, free);
  find_free(callable.body, names, free);
}

void find_free(Body& body, std::set<std::string>& names, std::set<std::string>& free) {
  for (auto& statement : body) {
    switch (statement->kind) {
      case StatementKind::data:
      case StatementKind::break_:
      case StatementKind::continue_:
      case StatementKind::import: break;
      case StatementKind::block:
        if (static_cast<BlockStatement&>(*statement).scoped)
          find_free(static_cast<BlockStatement&>(*statement).body, names, free);
        break;
      case StatementKind::output: find_free(static_cast<OutputStatement&>(*statement).value.get(), names, free); break;
      case StatementKind::if_: {
        auto& node = static_cast<IfStatement&>(*statement);
        for (auto& [test, then] : node.branches) {
          find_free(test.get(), names, free);
          find_free(then, names, free);
        }
        find_free(node.otherwise, names, free);
        break;
      }
      case StatementKind::for_: {
        auto& node = static_cast<ForStatement&>(*statement);
        forget(node.target.get(), names);
        find_free(node.iterable.get(), names, free);
        find_free(node.body, names, free);
        find_free(node.otherwise, names, free);
        find_free(node.filter.get(), names, free);
        break;
      }
      case StatementKind::set: {
        auto& node = static_cast<SetStatement&>(*statement);
        find_free(node.value.get(), names, free);
        forget(node.target.get(), names);
        break;
      }
      case StatementKind::set_block: {
        auto& node = static_cast<SetBlock&>(*statement);
        forget(node.target.get(), names);
        find_free(node.filter.get(), names, free);
        find_free(node.body, names, free);
        break;
      }
      case StatementKind::macro: find_free(static_cast<MacroStatement&>(*statement).callable, names, free); break;
      case StatementKind::call_block: {
        auto& node = static_cast<CallBlock&>(*statement);
        find_free(node.call.get(), names, free);
        find_free(node.callable, names, free);
        break;
      }
      case StatementKind::filter_block: {
        auto& node = static_cast<FilterBlock&>(*statement);
        find_free(node.body, names, free);
        find_free(node.filter.get(), names, free);
        break;
      }
      case StatementKind::with: {
        auto& node = static_cast<WithStatement&>(*statement);
        for (auto& [target, value] : node.assignments) {
          forget(target.get(), names);
          find_free(value.get(), names, free);
        }
        find_free(node.body, names, free);
        break;
      }
    }
  }
}

// --- binding: writing the slots into the tree
// ---------------------------------------------------------------------------

class Binder {
 public:
  explicit Binder(Template& tree) : tree_(tree) {}
  void run() {
    Symbols root(tree_.scope, nullptr, tree_);
    root_ = &root;
    analyse(root, tree_.body);
    bind(root, tree_.body, false);
  }

 private:
  // `soft`: inside an `if`, where an unknown filter is an error only when it is reached.
  void bind(Symbols& symbols, Body& body, bool soft) {
    for (auto& statement : body) bind(symbols, *statement, soft);
  }
  void bind(Symbols& symbols, Statement& statement, bool soft);
  void bind(Symbols& symbols, Expr* expr, bool soft);
  void bind_for(Symbols& symbols, ForStatement& node, bool soft);
  void bind_callable(Symbols& symbols, Callable& callable, int line);

  Template& tree_;
  Symbols* root_ = nullptr;
};

void Binder::bind(Symbols& symbols, Expr* expr, bool soft) {
  if (expr == nullptr) return;
  const auto unknown = [&](std::string_view what, const std::string& name) {
    if (!soft)
      throw Failure{ErrorCode::template_error, "TemplateAssertionError", fmt::format("No {} named '{}'.", what, name),
                    expr->line};
  };
  switch (expr->kind) {
    case ExprKind::name: symbols.find(static_cast<Name&>(*expr).id, static_cast<Name&>(*expr).binding); return;
    case ExprKind::namespace_ref:
      symbols.find(static_cast<NamespaceRef&>(*expr).id, static_cast<NamespaceRef&>(*expr).binding);
      return;
    case ExprKind::filter: {
      auto& node = static_cast<FilterExpr&>(*expr);
      node.function = find_filter(node.name);
      if (node.function == nullptr) unknown("filter", node.name);
      break;
    }
    case ExprKind::test: {
      auto& node = static_cast<TestExpr&>(*expr);
      node.function = find_test(node.name);
      if (node.function == nullptr) unknown("test", node.name);
      break;
    }
    case ExprKind::condition: soft = true; break;
    default: break;
  }
  each_child(*expr, [&](Expr* child) { bind(symbols, child, soft); });
}

void Binder::bind_for(Symbols& symbols, ForStatement& node, bool soft) {
  bind(symbols, node.iterable.get(), soft);
  Symbols inner(node.scope, &symbols, tree_);
  std::set<std::string> names = {"loop"};
  std::set<std::string> free;
  find_free(node.body, names, free);
  if (node.recursive || !free.empty()) node.loop_slot = inner.parameter("loop");
  declare_names(inner, node.target.get());
  analyse(inner, node.body);
  bind(inner, node.target.get(), false);
  bind(inner, node.body, false);
  if (node.filter) {
    Symbols filter(node.filter_scope, &symbols, tree_);
    declare_names(filter, node.filter_target.get());
    read_names(filter, node.filter.get());
    bind(filter, node.filter_target.get(), false);
    bind(filter, node.filter.get(), false);
  }
  Symbols otherwise(node.otherwise_scope, &symbols, tree_);
  analyse(otherwise, node.otherwise);
  bind(otherwise, node.otherwise, false);
}

void Binder::bind_callable(Symbols& symbols, Callable& callable, int line) {
  Symbols inner(callable.scope, &symbols, tree_);
  for (auto& parameter : callable.parameters) inner.parameter(parameter->id);
  for (auto& value : callable.defaults) read_names(inner, value.get());
  analyse(inner, callable.body);
  std::set<std::string> names = {"caller", "kwargs", "varargs"};
  std::set<std::string> free;
  find_free(callable.body, names, free);
  const auto position_of = [&](std::string_view name) {
    const auto found = std::find_if(callable.parameters.begin(), callable.parameters.end(),
                                    [&](const auto& parameter) { return parameter->id == name; });
    return found - callable.parameters.begin();
  };
  const auto count = static_cast<std::ptrdiff_t>(callable.parameters.size());
  if (free.contains("caller")) {
    callable.uses_caller = true;
    const auto at = position_of("caller");
    if (at == count)
      callable.caller_slot = inner.parameter("caller");
    else if (at < count - static_cast<std::ptrdiff_t>(callable.defaults.size()))
      throw Failure{ErrorCode::template_error, "TemplateAssertionError",
                    "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a "
                    "default.",
                    line};
  }
  if (free.contains("kwargs") && position_of("kwargs") == count) callable.kwargs_slot = inner.parameter("kwargs");
  if (free.contains("varargs") && position_of("varargs") == count) callable.varargs_slot = inner.parameter("varargs");
  for (auto& parameter : callable.parameters) bind(inner, parameter.get(), false);
  for (auto& value : callable.defaults) bind(inner, value.get(), false);
  bind(inner, callable.body, false);
}

void Binder::bind(Symbols& symbols, Statement& statement, bool soft) {
  switch (statement.kind) {
    case StatementKind::data:
    case StatementKind::break_:
    case StatementKind::continue_: return;
    case StatementKind::output: bind(symbols, static_cast<OutputStatement&>(statement).value.get(), soft); return;
    case StatementKind::if_: {
      auto& node = static_cast<IfStatement&>(statement);
      for (auto& [test, body] : node.branches) {
        bind(symbols, test.get(), true);
        bind(symbols, body, true);
      }
      bind(symbols, node.otherwise, true);
      return;
    }
    case StatementKind::for_: bind_for(symbols, static_cast<ForStatement&>(statement), soft); return;
    case StatementKind::set: {
      auto& node = static_cast<SetStatement&>(statement);
      bind(symbols, node.value.get(), soft);
      bind(symbols, node.target.get(), soft);
      return;
    }
    case StatementKind::set_block: {
      auto& node = static_cast<SetBlock&>(statement);
      Symbols inner(node.scope, &symbols, tree_);
      analyse(inner, node.body);
      read_names(inner, node.filter.get());
      bind(inner, node.body, false);
      bind(inner, node.filter.get(), false);
      bind(symbols, node.target.get(), soft);
      return;
    }
    case StatementKind::macro: {
      auto& node = static_cast<MacroStatement&>(statement);
      bind_callable(symbols, node.callable, node.line);
      bind(symbols, node.target.get(), soft);
      return;
    }
    case StatementKind::call_block: {
      auto& node = static_cast<CallBlock&>(statement);
      bind(symbols, node.call.get(), soft);
      bind_callable(symbols, node.callable, node.line);
      return;
    }
    case StatementKind::filter_block: {
      auto& node = static_cast<FilterBlock&>(statement);
      Symbols inner(node.scope, &symbols, tree_);
      analyse(inner, node.body);
      read_names(inner, node.filter.get());
      bind(inner, node.body, false);
      bind(inner, node.filter.get(), false);
      return;
    }
    case StatementKind::with: {
      auto& node = static_cast<WithStatement&>(statement);
      Symbols inner(node.scope, &symbols, tree_);
      for (auto& [target, value] : node.assignments) declare_names(inner, target.get());
      analyse(inner, node.body);
      for (auto& [target, value] : node.assignments) {
        bind(symbols, value.get(), soft);
        bind(inner, target.get(), false);
      }
      bind(inner, node.body, false);
      return;
    }
    case StatementKind::block: {
      // A block sees the template's own variables, and those of the loops around it only when it is scoped.
      auto& node = static_cast<BlockStatement&>(statement);
      Symbols inner(node.scope, node.scoped ? &symbols : root_, tree_);
      analyse(inner, node.body);
      bind(inner, node.body, false);
      return;
    }
    case StatementKind::import: return;
  }
}

}  // namespace

std::shared_ptr<const Template> parse_template(std::string source) {
  if (!is_valid_utf8(source)) throw Failure{ErrorCode::template_error, {}, "the chat template is not valid UTF-8", 0};
  auto tree = std::make_shared<Template>();
  Parser parser(tokenize(source));
  tree->body = parser.parse();
  tree->constants = parser.constants();
  tree->source = std::move(source);
  Binder(*tree).run();
  return tree;
}

}  // namespace adze::text::jinja
