// Binding call arguments to parameters.
#include <algorithm>

#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             std::size_t required)
    : function_(function) {
  if (arguments.positional.size() > names.size())
    raise_type_error(fmt::format("{}() takes at most {} argument{} ({} given)", function, names.size(),
                                 names.size() == 1 ? "" : "s", arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    std::size_t at = 0;
    while (at < names.size() && names.begin()[at] != name) ++at;
    if (at == names.size())
      raise_type_error(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    if (values_[at] != nullptr)
      raise_type_error(fmt::format("{}() got multiple values for argument '{}'", function, name));
    values_[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr)
      raise_type_error(fmt::format("{}() missing required argument '{}'", function, names.begin()[i]));
}

std::int64_t Bound::integer(std::size_t index, std::int64_t otherwise) const {
  if (values_[index] == nullptr) return otherwise;
  // Far beyond any size, and still free of overflow in the sums that follow.
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  return std::clamp(to_index(*values_[index], fmt::format("argument of {}()", function_)), -kFar, kFar);
}

bool Bound::flag(Runtime& rt, std::size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : truthy(rt, *values_[index]);
}

const StringObject* Bound::string(std::size_t index) const {
  if (values_[index] == nullptr || values_[index]->is_none()) return nullptr;
  return &expect_string(*values_[index], fmt::format("argument of {}()", function_));
}

}  // namespace adze::text::jinja
