// The quantised weights of folders that MLX wrote: "quantization" in config.json says how, for the model and for single
// modules, and each weight is three tensors, MODULE.weight (words of codes), MODULE.scales and MODULE.biases, which
// become one view. Nothing is copied. docs/design/0010.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "format/json.hpp"
#include "format/safetensors_folder.hpp"

namespace adze::format {

class MlxQuantisation {
 public:
  // Whether a config.json speaks of MLX's quantisation; other programs write "quantization_config" with a quant_method.
  static bool describes(const JsonObject& config);
  // Errors: unsupported_feature (a mode, a number of bits or a group size that Adze does not compute with, by module),
  // corrupt_file (a member of another kind).
  static Result<MlxQuantisation> parse(const JsonObject& config);

  // Whether a tensor is a weight's codes, and the codes that a tensor of scales or biases belongs to (null: it is
  // none).
  static bool is_codes(const SafetensorsTensor& tensor);
  static const SafetensorsTensor* codes_of(const SafetensorsTensor& scales, const SafetensorsFolder& folder);

  // The tensors of scales and biases that may stand beside codes of this name.
  static std::array<std::string, 2> names_beside(std::string_view codes);

  // The weight that `codes` and what stands beside them are. A module that config.json does not list is what its shapes
  // say, which the model's own settings decide where several fit. Errors: corrupt_file (no scales, no biases, shapes
  // that contradict each other or config.json), unsupported_feature (mxfp8, nvfp4).
  Result<tensor::TensorView> weight(const SafetensorsTensor& codes, const SafetensorsFolder& folder) const;
  // The same weight read with so many columns, where config.json leaves that open; nothing if it cannot have them.
  std::optional<tensor::TensorView> with_columns(const tensor::TensorView& weight, std::int64_t columns) const;

  std::string description() const;  // "MLX 4-bit, group 64", ", 3 modules otherwise"

 private:
  enum class Mode : std::uint8_t { affine, mxfp4 };
  struct Scheme {
    Mode mode = Mode::affine;
    int bits = 0, group = 0;
  };
  static Result<Scheme> parse_scheme(const JsonObject& object, std::string_view module);
  static std::optional<Scheme> scheme_of(bool exponents, std::int64_t group_bits, std::int64_t groups,
                                         std::int64_t columns);
  static std::string shown(const Scheme& scheme);
  static tensor::DType type_of(const Scheme& scheme);
  Result<Scheme> choose(const SafetensorsTensor& codes, const SafetensorsTensor& scales) const;

  Scheme everything_;
  std::map<std::string, std::optional<Scheme>, std::less<>> modules_;  // no scheme: said not to be quantised
};

}  // namespace adze::format
