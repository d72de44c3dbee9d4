#include "tensor/grouped.hpp"

#include <cstring>

#include "base/check.hpp"
#include "base/half.hpp"
#include "tensor/blocks/mxfp4.hpp"

namespace adze::tensor {
namespace {

template <class T>
T load(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

float scale_at(const std::byte* scales, GroupScales::Type type, std::int64_t group) {
  switch (type) {
    case GroupScales::Type::f32: return load<float>(scales, group);
    case GroupScales::Type::f16: return f16_to_f32(load<std::uint16_t>(scales, group));
    case GroupScales::Type::bf16: return bf16_to_f32(load<std::uint16_t>(scales, group));
    case GroupScales::Type::e8m0: return blocks::mxfp4_half_scale(load<std::uint8_t>(scales, group));
  }
  ADZE_CHECK(false, "scale type {}", static_cast<int>(type));
}

}  // namespace

unsigned code_at(const std::byte* row, int bits, std::int64_t i) {
  const auto first = static_cast<std::size_t>(i) * static_cast<std::size_t>(bits);
  const std::byte* at = row + first / 8;
  unsigned word = static_cast<unsigned>(at[0]);
  if (first % 8 + static_cast<std::size_t>(bits) > 8) word |= static_cast<unsigned>(at[1]) << 8;
  return (word >> (first % 8)) & ((1u << bits) - 1);
}

void dequantise_codes(DType type, const std::byte* row, const GroupScales& groups, float* out, std::int64_t columns) {
  const auto bits = static_cast<int>(dtype_info(type).code_bits);
  ADZE_CHECK(bits > 0 && groups.size > 0 && columns % groups.size == 0, "{} columns of {} in groups of {}", columns,
             dtype_info(type).name, groups.size);
  for (std::int64_t group = 0; group < columns / groups.size; ++group) {
    const float scale = scale_at(groups.scales, groups.type, group);
    const float bias = groups.biases == nullptr ? 0.0f : scale_at(groups.biases, groups.type, group);
    for (std::int64_t i = group * groups.size; i < (group + 1) * groups.size; ++i) {
      const unsigned code = code_at(row, bits, i);
      out[i] = type == DType::mlx_mxfp4 ? scale * static_cast<float>(blocks::kMxfp4Doubled[code])
                                        : scale * static_cast<float>(code) + bias;
    }
  }
}

}  // namespace adze::tensor
