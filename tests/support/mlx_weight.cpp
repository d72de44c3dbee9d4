#include "support/mlx_weight.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.hpp"
#include "tensor/blocks/mxfp4.hpp"

namespace adze::test {
namespace {

using Scale = tensor::GroupScales::Type;

void put_scale(std::byte* scales, Scale type, std::size_t group, float value) {
  std::byte* at = scales + group * tensor::scale_bytes(type);
  if (type == Scale::f32) {
    std::memcpy(at, &value, sizeof value);
  } else {
    const std::uint16_t half = type == Scale::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(at, &half, sizeof half);
  }
}

}  // namespace

MlxWeight::MlxWeight(tensor::DType type, std::int64_t rows, std::int64_t columns, std::span<const float> values,
                     int group, Scale scales, std::size_t shift)
    : shift_(shift) {
  const bool fp4 = type == tensor::DType::mlx_mxfp4;
  const auto groups = static_cast<std::size_t>(rows * columns / group);
  const Scale scale_type = fp4 ? Scale::e8m0 : scales;
  codes_.resize(static_cast<std::size_t>(rows) * tensor::row_bytes(type, columns) + shift);
  scales_.resize(groups * tensor::scale_bytes(scale_type) + shift);
  if (!fp4) biases_.resize(scales_.size());
  view_ = {.name = name_,
           .type = type,
           .shape = {.dims = {rows, columns, 1, 1}, .rank = 2},
           .bytes = std::span(codes_).subspan(shift),
           .groups = {.scales = scales_.data() + shift,
                      .biases = fp4 ? nullptr : biases_.data() + shift,
                      .type = scale_type,
                      .size = group}};
  for (std::size_t g = 0; g < groups; ++g) fp4 ? encode_mxfp4(values, g) : encode_affine(values, g);
}

void MlxWeight::put_code(std::size_t index, unsigned code) {
  const std::size_t bits = tensor::dtype_info(view_.type).code_bits, first = index * bits;
  for (std::size_t b = 0; b < bits; ++b) {
    const std::size_t at = first + b;
    if (((code >> b) & 1u) != 0) codes_[shift_ + at / 8] |= std::byte(1u << (at % 8));
  }
}

void MlxWeight::encode_affine(std::span<const float> values, std::size_t group) {
  const auto size = static_cast<std::size_t>(view_.groups.size);
  const auto w = values.subspan(group * size, size);
  const float low = *std::ranges::min_element(w), high = *std::ranges::max_element(w);
  const float top = static_cast<float>((1u << tensor::dtype_info(view_.type).code_bits) - 1);
  const bool from_low = std::fabs(low) > std::fabs(high);
  const float edge = from_low ? low : high;
  float scale = std::max((high - low) / top, 1e-7f);
  if (!from_low) scale = -scale;
  const float zero = std::nearbyint(edge / scale);  // the code steps from the edge to zero
  float bias = 0.0f;
  if (zero != 0.0f) {
    scale = edge / zero;
    bias = edge;
  }
  for (std::size_t i = 0; i < size; ++i) {
    const float code = std::clamp(std::nearbyint((w[i] - bias) / scale), 0.0f, top);
    put_code(group * size + i, static_cast<unsigned>(code));
  }
  put_scale(scales_.data() + shift_, view_.groups.type, group, scale);
  put_scale(biases_.data() + shift_, view_.groups.type, group, bias);
}

void MlxWeight::encode_mxfp4(std::span<const float> values, std::size_t group) {
  tensor::blocks::MXFP4 block;
  tensor::blocks::quantise(values.data() + group * 32, block);
  scales_[shift_ + group] = std::byte{block.e};
  for (std::size_t i = 0; i < 32; ++i) {
    put_code(group * 32 + i, i < 16 ? block.qs[i] & 15u : static_cast<unsigned>(block.qs[i - 16]) >> 4);
  }
}

std::vector<float> MlxWeight::values() const {
  std::vector<float> out(static_cast<std::size_t>(view_.shape.elements()));
  for (std::int64_t row = 0; row < view_.rows(); ++row) {
    tensor::dequantise_row(view_, row, out.data() + row * view_.columns());
  }
  return out;
}

}  // namespace adze::test
