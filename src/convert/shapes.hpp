// Shapes of published models, for files of random weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace adze::convert {

struct ModelShape {
  std::string_view name;    // "llama-3.2-1b"
  std::string_view config;  // as its config.json says it, without what makes no difference
  double parameters;        // published, in units of 10^9; of multimodal models the text model's
};
std::span<const ModelShape> model_shapes();
const ModelShape* find_shape(std::string_view name);  // null: none

}  // namespace adze::convert
