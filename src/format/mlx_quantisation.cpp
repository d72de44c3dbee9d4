#include "format/mlx_quantisation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "format/metadata.hpp"

namespace adze::format {
namespace {

using tensor::DType;
using tensor::GroupScales;

constexpr std::string_view kKey = "quantization", kOtherKey = "quantization_config";
constexpr std::string_view kWeight = ".weight", kScales = ".scales", kBiases = ".biases";
constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kGroups = {32, 64, 128};

template <class Range>
bool has(const Range& range, std::int64_t value) {
  return std::ranges::find(range, value) != range.end();
}

std::string beside(std::string_view codes, std::string_view suffix) {
  return fmt::format("{}{}", codes.substr(0, codes.size() - kWeight.size()), suffix);
}

std::string shape_text(const SafetensorsTensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape, ", ")); }

std::optional<GroupScales::Type> scale_type(std::string_view dtype) {
  if (dtype == "F32") return GroupScales::Type::f32;
  if (dtype == "F16") return GroupScales::Type::f16;
  if (dtype == "BF16") return GroupScales::Type::bf16;
  if (dtype == "U8") return GroupScales::Type::e8m0;
  return std::nullopt;
}

tl::unexpected<Error> contradiction(const SafetensorsTensor& codes, std::string_view problem) {
  return fail(ErrorCode::corrupt_file, fmt::format("tensor '{}' {}", printable(codes.name), problem),
              "config.json and the weights are not of one model, or the folder is damaged: download it again");
}

tl::unexpected<Error> refuse(std::string_view what) {
  return fail(ErrorCode::unsupported_feature, std::string(what),
              "use the model in MLX 2, 3, 4, 5, 6 or 8 bits with groups of 32, 64 or 128, in mxfp4, or as a GGUF");
}

}  // namespace

bool MlxQuantisation::describes(const JsonObject& config) {
  if (config.is_object(kKey)) return true;
  if (!config.is_object(kOtherKey)) return false;
  const auto object = config.object(kOtherKey);
  return object && *object && !(*object)->has("quant_method") && (*object)->has("bits") && (*object)->has("group_size");
}

Result<MlxQuantisation::Scheme> MlxQuantisation::parse_scheme(const JsonObject& object, std::string_view module) {
  const std::string where = fmt::format("{}: \"{}\"{}", object.file(), kKey,
                                        module.empty() ? std::string() : fmt::format(" of '{}'", printable(module)));
  ADZE_TRY(const auto mode, object.text("mode"));
  Scheme scheme;
  if (!mode || *mode == "affine") {
    scheme = {Mode::affine, 4, 64};
  } else if (*mode == "mxfp4") {
    scheme = {Mode::mxfp4, 4, 32};
  } else {
    return refuse(fmt::format("{} asks for the mode '{}', which Adze does not compute with", where, printable(*mode)));
  }
  ADZE_TRY(const auto bits, object.integer("bits"));
  ADZE_TRY(const auto group, object.integer("group_size"));
  const bool fits = scheme.mode == Mode::affine ? has(kBits, bits.value_or(4)) && has(kGroups, group.value_or(64))
                                                : bits.value_or(4) == 4 && group.value_or(32) == 32;
  if (!fits) {
    return refuse(fmt::format("{} asks for {} bits in groups of {}{}, which Adze does not compute with", where,
                              bits.value_or(scheme.bits), group.value_or(scheme.group),
                              scheme.mode == Mode::mxfp4 ? " in mode mxfp4" : ""));
  }
  scheme.bits = static_cast<int>(bits.value_or(scheme.bits));
  scheme.group = static_cast<int>(group.value_or(scheme.group));
  return scheme;
}

Result<MlxQuantisation> MlxQuantisation::parse(const JsonObject& config) {
  ADZE_TRY(const auto object, config.object(config.has(kKey) ? kKey : kOtherKey));
  ADZE_CHECK(object.has_value(), "{} has no {}", config.file(), kKey);
  MlxQuantisation quantisation;
  ADZE_TRY(quantisation.everything_, parse_scheme(*object, {}));
  for (const std::string& key : object->keys()) {
    if (object->is_object(key)) {
      ADZE_TRY(const auto settings, object->object(key));
      ADZE_TRY(quantisation.modules_[key], parse_scheme(*settings, key));
    } else if (object->json(key) == "false") {
      quantisation.modules_[key] = std::nullopt;
    }
  }
  return quantisation;
}

bool MlxQuantisation::is_codes(const SafetensorsTensor& tensor) {
  return tensor.dtype == "U32" && std::string_view(tensor.name).ends_with(kWeight);
}

const SafetensorsTensor* MlxQuantisation::codes_of(const SafetensorsTensor& scales, const SafetensorsFolder& folder) {
  const std::string_view name = scales.name;
  for (const std::string_view suffix : {kScales, kBiases}) {
    if (!name.ends_with(suffix)) continue;
    const auto* codes = folder.find(fmt::format("{}{}", name.substr(0, name.size() - suffix.size()), kWeight));
    return codes != nullptr && is_codes(*codes) ? codes : nullptr;
  }
  return nullptr;
}

std::array<std::string, 2> MlxQuantisation::names_beside(std::string_view codes) {
  return {beside(codes, kScales), beside(codes, kBiases)};
}

// The scheme of a weight with `group_bits` bits of codes for each scale, if there is one; columns 0: of any width.
std::optional<MlxQuantisation::Scheme> MlxQuantisation::scheme_of(bool exponents, std::int64_t group_bits,
                                                                  std::int64_t groups, std::int64_t columns) {
  const auto fits = [&](const Scheme& scheme) {
    return std::int64_t{scheme.bits} * scheme.group == group_bits && (columns == 0 || groups * scheme.group == columns);
  };
  if (exponents) {
    const Scheme mxfp4{Mode::mxfp4, 4, 32};
    return fits(mxfp4) ? std::optional(mxfp4) : std::nullopt;
  }
  for (const int bits : kBits) {
    for (const int group : kGroups) {
      const Scheme scheme{Mode::affine, bits, group};
      if (fits(scheme)) return scheme;
    }
  }
  return std::nullopt;
}

Result<MlxQuantisation::Scheme> MlxQuantisation::choose(const SafetensorsTensor& codes,
                                                        const SafetensorsTensor& scales) const {
  const bool exponents = scales.dtype == "U8";
  const std::int64_t row_bits = 32 * codes.shape.back(), groups = scales.shape.back();
  const std::int64_t group_bits = row_bits % groups == 0 ? row_bits / groups : 0;
  const auto fits = [&](const Scheme& scheme) {
    return exponents == (scheme.mode == Mode::mxfp4) && std::int64_t{scheme.bits} * scheme.group == group_bits;
  };
  const std::string found =
      fmt::format("has {} words and {} {} scales a row", codes.shape.back(), groups, scales.dtype);
  const auto listed = modules_.find(beside(codes.name, ""));
  if (listed != modules_.end()) {
    if (!listed->second) return contradiction(codes, "holds codes, but config.json says that it is not quantised");
    if (fits(*listed->second)) return *listed->second;
    return contradiction(
        codes, fmt::format("{}, which is not the {} that config.json gives it", found, shown(*listed->second)));
  }
  if (fits(everything_)) return everything_;
  if (const auto inferred = scheme_of(exponents, group_bits, groups, 0)) return *inferred;
  if (exponents && (group_bits == 64 || group_bits == 256)) {
    return refuse(fmt::format("tensor '{}' is in MLX's mode {}, which Adze does not compute with",
                              printable(codes.name), group_bits == 64 ? "nvfp4" : "mxfp8"));
  }
  return contradiction(codes,
                       fmt::format("{}, which is neither {} nor any other that there is", found, shown(everything_)));
}

Result<tensor::TensorView> MlxQuantisation::weight(const SafetensorsTensor& codes,
                                                   const SafetensorsFolder& folder) const {
  const SafetensorsTensor* scales = folder.find(beside(codes.name, kScales));
  const SafetensorsTensor* biases = folder.find(beside(codes.name, kBiases));
  const std::size_t rank = codes.shape.size();
  if (scales == nullptr) {
    return contradiction(codes,
                         fmt::format("holds codes, but '{}' is missing", printable(beside(codes.name, kScales))));
  }
  const auto type = scale_type(scales->dtype);
  if (!type) {
    return fail(ErrorCode::unsupported_type, fmt::format("tensor '{}' holds scales of type {}, expected F32, F16, BF16 "
                                                         "or U8",
                                                         printable(scales->name), scales->dtype));
  }
  const bool same_rows = scales->shape.size() == rank && rank >= 2 && rank <= 4 && !codes.bytes.empty() &&
                         !scales->bytes.empty() &&
                         std::equal(codes.shape.begin(), codes.shape.end() - 1, scales->shape.begin());
  if (!same_rows) {
    return contradiction(codes,
                         fmt::format("has the shape {}, its scales have {}", shape_text(codes), shape_text(*scales)));
  }
  const bool affine = *type != GroupScales::Type::e8m0;
  if (affine && biases == nullptr) {
    return contradiction(codes,
                         fmt::format("holds codes, but '{}' is missing", printable(beside(codes.name, kBiases))));
  }
  if (affine && (biases->shape != scales->shape || biases->dtype != scales->dtype)) {
    return contradiction(codes, fmt::format("has scales {} {}, but biases {} {}", scales->dtype, shape_text(*scales),
                                            biases->dtype, shape_text(*biases)));
  }
  ADZE_TRY(const Scheme scheme, choose(codes, *scales));
  tensor::TensorView view{.name = codes.name, .type = type_of(scheme), .shape = {}, .bytes = codes.bytes};
  view.shape.rank = static_cast<int>(rank);
  std::copy(codes.shape.begin(), codes.shape.end(), view.shape.dims.begin());
  view.shape.dims[rank - 1] = scales->shape.back() * scheme.group;
  view.groups = {.scales = scales->bytes.data(),
                 .biases = affine ? biases->bytes.data() : nullptr,
                 .type = *type,
                 .size = scheme.group};
  return view;
}

std::optional<tensor::TensorView> MlxQuantisation::with_columns(const tensor::TensorView& weight,
                                                                std::int64_t columns) const {
  if (weight.groups.size == 0 || modules_.contains(beside(weight.name, ""))) return std::nullopt;
  const std::int64_t group_bits = std::int64_t{tensor::dtype_info(weight.type).code_bits} * weight.groups.size;
  const auto scheme = scheme_of(weight.groups.type == GroupScales::Type::e8m0, group_bits,
                                weight.columns() / weight.groups.size, columns);
  if (!scheme) return std::nullopt;
  tensor::TensorView view = weight;
  view.type = type_of(*scheme);
  view.shape.dims[static_cast<std::size_t>(view.shape.rank - 1)] = columns;
  view.groups.size = scheme->group;
  return view;
}

tensor::DType MlxQuantisation::type_of(const Scheme& scheme) {
  if (scheme.mode == Mode::mxfp4) return DType::mlx_mxfp4;
  for (const DType type : {DType::mlx_2, DType::mlx_3, DType::mlx_4, DType::mlx_5, DType::mlx_6, DType::mlx_8}) {
    if (tensor::dtype_info(type).code_bits == static_cast<std::uint32_t>(scheme.bits)) return type;
  }
  ADZE_CHECK(false, "{} bits", scheme.bits);
}

std::string MlxQuantisation::shown(const Scheme& scheme) {
  tensor::TensorView weight;
  weight.type = type_of(scheme);
  weight.groups.size = scheme.group;
  return tensor::type_name(weight);
}

std::string MlxQuantisation::description() const {
  std::string text = shown(everything_);
  if (!modules_.empty())
    text += fmt::format(", {} module{} otherwise", modules_.size(), modules_.size() == 1 ? "" : "s");
  return text;
}

}  // namespace adze::format
