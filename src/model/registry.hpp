// The families that Adze has: one row each. A family turns metadata into hyper-parameters, names its tensors, and
// writes its forward pass as a Plan.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/metadata.hpp"
#include "model/huggingface/import.hpp"
#include "model/hyperparameters.hpp"
#include "model/plan_builder.hpp"
#include "model/tensors.hpp"

namespace adze::model {

struct Family {
  std::string_view name;
  std::span<const std::string_view> architectures;  // general.architecture
  std::string_view summary;                         // one line for people
  Result<Hyperparameters> (*config)(const ConfigReader& reader);
  std::vector<TensorRow> (*tensors)(const Hyperparameters& parameters);
  void (*forward)(const Hyperparameters& parameters, const Weights& weights, PlanBuilder& plan);
  std::span<const FamilyImport> imports{};  // from Hugging Face folders; empty: GGUF only
};

std::span<const Family* const> families();
// Null when no family has this architecture.
const Family* find_family(std::string_view architecture);
// "llama, ...": for messages.
std::string supported_architectures();

}  // namespace adze::model
