// The metadata of a GGUF file, from what a folder's import wrote for Adze's own families: the same keys, in the integer
// types that other readers expect, without those that only a folder needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"
#include "format/gguf_writer.hpp"
#include "format/metadata.hpp"
#include "model/hyperparameters.hpp"
#include "model/registry.hpp"

namespace adze::convert {

// general.* and "<architecture>.*" of `imported`, and the sizes that its readers want though a folder implies them.
void add_metadata(const format::Metadata& imported, const model::Hyperparameters& parameters, format::GgufWriter& out);

// "1.2B", "8x290K": a model's size as general.size_label has it. Of a mixture of experts: how many experts, times what
// a token's way through one of them would weigh.
struct ParameterCount {
  std::int64_t shared = 0;   // outside the experts
  std::int64_t experts = 0;  // in all experts
  int expert_count = 0;      // 0: no mixture
  std::int64_t total() const { return shared + experts; }
};
std::string size_label(const ParameterCount& count);

// What the file will mean to whoever reads it: its metadata read back by the family. Errors: unsupported_feature, by
// name, for a setting that changes what the model computes and that got lost on the way.
Result<model::Hyperparameters> read_back(const format::GgufWriter& written, const model::Family& family,
                                         const model::Hyperparameters& meant);

}  // namespace adze::convert
