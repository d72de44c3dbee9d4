#include "tensor/dtype.hpp"

#include <array>
#include <cstring>

#include "base/check.hpp"
#include "tensor/blocks/floats.hpp"
#include "tensor/blocks/iq4_nl.hpp"
#include "tensor/blocks/iq4_xs.hpp"
#include "tensor/blocks/mxfp4.hpp"
#include "tensor/blocks/q2_k.hpp"
#include "tensor/blocks/q3_k.hpp"
#include "tensor/blocks/q4_0.hpp"
#include "tensor/blocks/q4_1.hpp"
#include "tensor/blocks/q4_k.hpp"
#include "tensor/blocks/q5_0.hpp"
#include "tensor/blocks/q5_1.hpp"
#include "tensor/blocks/q5_k.hpp"
#include "tensor/blocks/q6_k.hpp"
#include "tensor/blocks/q8_0.hpp"

namespace adze::tensor {
namespace {

// Blocks are copied out and in, so rows may lie at any address.
template <class Block>
void dequantise_blocks(const std::byte* blocks, float* out, std::size_t block_count) {
  for (std::size_t i = 0; i < block_count; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * sizeof(Block), sizeof(Block));
    dequantise(block, out + i * Block::kElements);
  }
}

template <class Block>
constexpr bool kWeighs =
    requires(const float* in, const blocks::Importance& importance, Block& block) { quantise(in, importance, block); };

template <class Block>
void quantise_blocks(const float* in, const float* importance, std::byte* blocks, std::size_t block_count) {
  const std::size_t elements = block_count * Block::kElements;
  float mean_square = 0.0f;
  if (kWeighs<Block> && importance != nullptr && block_count > 0) {
    mean_square = blocks::sum_of_squares(in, static_cast<std::int64_t>(elements)) / static_cast<float>(elements);
  }
  for (std::size_t i = 0; i < elements; i += Block::kElements) {
    Block block;
    if constexpr (kWeighs<Block>) {
      if (importance != nullptr) {
        quantise(in + i, blocks::Importance{importance + i, mean_square}, block);
      } else {
        quantise(in + i, block);
      }
    } else {
      quantise(in + i, block);
    }
    std::memcpy(blocks, &block, sizeof(Block));
    blocks += sizeof(Block);
  }
}

template <class Block>
constexpr DTypeInfo weight(DType type, std::string_view name, std::uint32_t ggml_id) {
  return {.type = type,
          .name = name,
          .ggml_id = ggml_id,
          .block_elements = Block::kElements,
          .block_bytes = sizeof(Block),
          .takes_importance = kWeighs<Block>,
          .dequantise = dequantise_blocks<Block>,
          .quantise = quantise_blocks<Block>,
          .code_bits = 0};
}

constexpr DTypeInfo plain(DType type, std::string_view name, std::uint32_t ggml_id, std::uint32_t bytes) {
  return {.type = type,
          .name = name,
          .ggml_id = ggml_id,
          .block_elements = 1,
          .block_bytes = bytes,
          .takes_importance = false,
          .dequantise = nullptr,
          .quantise = nullptr,
          .code_bits = 0};
}

constexpr DTypeInfo codes(DType type, std::string_view name, std::uint32_t bits) {
  return {.type = type,
          .name = name,
          .ggml_id = kNoGgmlId,
          .block_elements = 32,
          .block_bytes = 4 * bits,
          .takes_importance = false,
          .dequantise = nullptr,
          .quantise = nullptr,
          .code_bits = bits};
}

// In the order of DType: dtype_info indexes it.
constexpr std::array kTypes = {
    weight<blocks::F32>(DType::f32, "F32", 0),
    weight<blocks::F16>(DType::f16, "F16", 1),
    weight<blocks::BF16>(DType::bf16, "BF16", 30),
    plain(DType::i8, "I8", 24, 1),
    plain(DType::i16, "I16", 25, 2),
    plain(DType::i32, "I32", 26, 4),
    plain(DType::i64, "I64", 27, 8),
    plain(DType::f64, "F64", 28, 8),
    weight<blocks::Q4_0>(DType::q4_0, "Q4_0", 2),
    weight<blocks::Q4_1>(DType::q4_1, "Q4_1", 3),
    weight<blocks::Q5_0>(DType::q5_0, "Q5_0", 6),
    weight<blocks::Q5_1>(DType::q5_1, "Q5_1", 7),
    weight<blocks::Q8_0>(DType::q8_0, "Q8_0", 8),
    weight<blocks::Q2_K>(DType::q2_k, "Q2_K", 10),
    weight<blocks::Q3_K>(DType::q3_k, "Q3_K", 11),
    weight<blocks::Q4_K>(DType::q4_k, "Q4_K", 12),
    weight<blocks::Q5_K>(DType::q5_k, "Q5_K", 13),
    weight<blocks::Q6_K>(DType::q6_k, "Q6_K", 14),
    weight<blocks::IQ4_NL>(DType::iq4_nl, "IQ4_NL", 20),
    weight<blocks::IQ4_XS>(DType::iq4_xs, "IQ4_XS", 23),
    weight<blocks::MXFP4>(DType::mxfp4, "MXFP4", 39),
    codes(DType::mlx_2, "MLX2", 2),
    codes(DType::mlx_3, "MLX3", 3),
    codes(DType::mlx_4, "MLX4", 4),
    codes(DType::mlx_5, "MLX5", 5),
    codes(DType::mlx_6, "MLX6", 6),
    codes(DType::mlx_8, "MLX8", 8),
    codes(DType::mlx_mxfp4, "MLX-MXFP4", 4),
};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<std::size_t>(kTypes[i].type) != i) return false;
  }
  return static_cast<std::size_t>(DType::mlx_mxfp4) + 1 == kTypes.size();
}
static_assert(in_enum_order(), "kTypes follows the order of DType, one row each");

struct Refused {
  std::uint32_t ggml_id;
  std::string_view name;
};

// Types that ggml has or once had and Adze does not, so that an error can call them by name.
constexpr std::array kRefused = {
    Refused{4, "Q4_2"},        Refused{5, "Q4_3"},        Refused{9, "Q8_1"},        Refused{15, "Q8_K"},
    Refused{16, "IQ2_XXS"},    Refused{17, "IQ2_XS"},     Refused{18, "IQ3_XXS"},    Refused{19, "IQ1_S"},
    Refused{21, "IQ3_S"},      Refused{22, "IQ2_S"},      Refused{29, "IQ1_M"},      Refused{31, "Q4_0_4_4"},
    Refused{32, "Q4_0_4_8"},   Refused{33, "Q4_0_8_8"},   Refused{34, "TQ1_0"},      Refused{35, "TQ2_0"},
    Refused{36, "IQ4_NL_4_4"}, Refused{37, "IQ4_NL_4_8"}, Refused{38, "IQ4_NL_8_8"}, Refused{40, "NVFP4"},
    Refused{41, "Q1_0"},       Refused{42, "Q2_0"},
};

std::size_t block_count(const DTypeInfo& info, std::int64_t elements) {
  ADZE_CHECK(elements >= 0 && elements % info.block_elements == 0, "{} elements are no whole number of {} blocks of {}",
             elements, info.name, info.block_elements);
  return static_cast<std::size_t>(elements / info.block_elements);
}

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  const auto index = static_cast<std::size_t>(type);
  ADZE_CHECK(index < kTypes.size(), "type {}", index);
  return kTypes[index];
}

std::span<const DTypeInfo> all_dtypes() { return kTypes; }

std::optional<DType> dtype_from_ggml(std::uint32_t ggml_id) {
  if (ggml_id == kNoGgmlId) return std::nullopt;
  for (const DTypeInfo& info : kTypes) {
    if (info.ggml_id == ggml_id) return info.type;
  }
  return std::nullopt;
}

std::string_view ggml_type_name(std::uint32_t ggml_id) {
  if (const auto type = dtype_from_ggml(ggml_id)) return dtype_info(*type).name;
  for (const Refused& refused : kRefused) {
    if (refused.ggml_id == ggml_id) return refused.name;
  }
  return {};
}

bool is_block_type(DType type) { return dtype_info(type).block_elements > 1; }

std::size_t row_bytes(DType type, std::int64_t elements) {
  const DTypeInfo& info = dtype_info(type);
  return block_count(info, elements) * info.block_bytes;
}

void dequantise_row(DType type, const std::byte* row, float* out, std::int64_t elements) {
  const DTypeInfo& info = dtype_info(type);
  ADZE_CHECK(info.dequantise != nullptr, "{} is not a weight type by itself", info.name);
  info.dequantise(row, out, block_count(info, elements));
}

void quantise_row(DType type, const float* in, std::byte* row, std::int64_t elements, const float* importance) {
  const DTypeInfo& info = dtype_info(type);
  ADZE_CHECK(info.quantise != nullptr, "{} is not a weight type", info.name);
  info.quantise(in, importance, row, block_count(info, elements));
}

}  // namespace adze::tensor
