// Every setting of a model under its name, in one list: what model-manifest.json says (docs/model-manifest.md has the
// names), and what two readings of a model must agree on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/hyperparameters.hpp"

namespace adze::model {

struct Field {
  using Value = std::variant<bool, std::int64_t, double, std::string_view, std::vector<float>>;

  std::string name;  // "hidden_size", "rope.base"
  Value value;

  bool operator==(const Field&) const = default;
};

// Those of the whole model, how many layers it has, and nothing else of the layers.
std::vector<Field> fields_of(const Hyperparameters& parameters);
std::vector<Field> fields_of(const LayerParameters& layer);

}  // namespace adze::model
