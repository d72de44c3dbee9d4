// Element types: floats and ggml's quantised block types. A block is `block_elements` consecutive values of one row
// stored in `block_bytes` bytes; each block type has one header under tensor/blocks/ with its layout and its slow,
// exact conversions, and one row in the table behind dtype_info(). This file is the only switch over types.
//
// MLX's types are codes whose scales stand in tensors of their own (GroupScales, grouped.hpp): a block of 32 codes says
// nothing without them, so such rows are converted through a TensorView.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace adze::tensor {

enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  i8,
  i16,
  i32,
  i64,
  f64,  // never weights; GGUF files may carry them
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  mlx_2,  // affine codes of so many bits
  mlx_3,
  mlx_4,
  mlx_5,
  mlx_6,
  mlx_8,
  mlx_mxfp4,  // E2M1 codes, scales E8M0: the values of mxfp4, stored apart
};

inline constexpr std::uint32_t kNoGgmlId = 0xffffffffu;

struct DTypeInfo {
  DType type;
  std::string_view name;  // ggml's spelling: "Q4_1", "Q6_K", "BF16"
  std::uint32_t ggml_id;  // the type id in a GGUF tensor record, or kNoGgmlId
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
  bool takes_importance;  // whether an importance matrix changes what the quantiser does
  // Exact conversion of `blocks` blocks to float32. Null for types that are never weights, and for codes.
  void (*dequantise)(const std::byte* blocks, float* out, std::size_t block_count);
  // ggml's reference quantiser, bit for bit, with the importance of each column (as quantise_row) or, where that is
  // null, without. The blocks are one row when it is given. Null where `dequantise` is.
  void (*quantise)(const float* in, const float* importance, std::byte* blocks, std::size_t block_count);
  std::uint32_t code_bits = 0;  // of codes whose scales stand beside them; 0: a block holds all that it needs

  bool is_weight() const { return dequantise != nullptr || code_bits != 0; }
};

// Scales that stand beside a weight's codes: one, and for affine codes one bias, for `size` consecutive values of a
// row. [rows, columns / size], row-major, at any address.
struct GroupScales {
  enum class Type : std::uint8_t { f32, f16, bf16, e8m0 };
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;  // null for e8m0
  Type type = Type::f32;
  int size = 0;  // 0: the weight's blocks hold their scales
};
// Bytes of one scale.
constexpr std::size_t scale_bytes(GroupScales::Type type) {
  return type == GroupScales::Type::f32 ? 4 : type == GroupScales::Type::e8m0 ? 1 : 2;
}

const DTypeInfo& dtype_info(DType type);
std::span<const DTypeInfo> all_dtypes();

// The type with this GGUF id; nothing if Adze does not have it (then ggml_type_name may still know what it is).
std::optional<DType> dtype_from_ggml(std::uint32_t ggml_id);
// The name ggml gives a type id, also of types that Adze refuses ("IQ2_XXS", "TQ1_0", "NVFP4"); empty if unknown.
std::string_view ggml_type_name(std::uint32_t ggml_id);

// Whether values come in blocks that share a scale: quantised, not a float or an integer of its own.
bool is_block_type(DType type);

// Bytes of a row of `elements` values; elements must be a multiple of block_elements (ADZE_CHECK).
std::size_t row_bytes(DType type, std::int64_t elements);

// Converts a whole row, elements a multiple of block_elements; of a type whose blocks hold their scales.
void dequantise_row(DType type, const std::byte* row, float* out, std::int64_t elements);
// `importance` [elements], or null: per column the mean square of what it is multiplied by; the quantiser then makes
// the error of the product small instead of that of the values. Types that do not take one ignore it.
void quantise_row(DType type, const float* in, std::byte* row, std::int64_t elements,
                  const float* importance = nullptr);

}  // namespace adze::tensor
