#include "golden/folder_of_gguf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/half.hpp"
#include "support/safetensors_fixture.hpp"

namespace adze::test {
namespace {

using model::Transform;

std::string replaced(std::string_view pattern, char mark, std::int64_t by) {
  const auto at = pattern.find(mark);
  if (at == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), by, pattern.substr(at + 1));
}

// Values in the order of the tensor, and its shape.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  bool from_blocks = false;
  std::int64_t columns() const { return shape.back(); }
};

Array array_of(const tensor::TensorView& view) {
  Array array{{view.shape.dims.begin(), view.shape.dims.begin() + view.shape.rank},
              std::vector<float>(static_cast<std::size_t>(view.shape.elements())),
              tensor::dtype_info(view.type).block_elements > 1};
  tensor::dequantise_row(view.type, view.bytes.data(), array.values.data(), view.shape.elements());
  return array;
}

// Rows of each head from neighbours (2i, 2i + 1) back to half-split pairs (i, i + d / 2).
Array half_split(const Array& in, std::int64_t head_size) {
  Array out = in;
  const std::int64_t width = in.shape.size() == 1 ? 1 : in.columns();
  const auto rows = static_cast<std::int64_t>(in.values.size()) / width;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / head_size * head_size, in_head = row % head_size;
    const std::int64_t target = head + in_head % 2 * (head_size / 2) + in_head / 2;
    std::copy_n(in.values.begin() + row * width, width, out.values.begin() + target * width);
  }
  return out;
}

// [outer, rows, columns] into [outer, columns, step * rows] (or [outer, columns] into [outer, step * columns]) at every
// step-th place from `first` on.
void put_transposed(const Array& in, std::int64_t first, std::int64_t step, Array& out) {
  const std::int64_t outer = in.shape[0], rows = in.shape[1], columns = in.shape.size() == 2 ? 1 : in.shape[2];
  out.shape = in.shape;
  if (in.shape.size() == 3) out.shape[1] = columns;
  out.shape.back() = step * rows;
  out.values.resize(static_cast<std::size_t>(outer * columns * step * rows));
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        out.values[static_cast<std::size_t>((o * columns + c) * step * rows + first + step * r)] =
            in.values[static_cast<std::size_t>((o * rows + r) * columns + c)];
      }
    }
  }
}

// Rows of q, k, v (or z) into groups [q: dk | k: dk | v: r dv | z: r dv], one for each key head.
void put_grouped(const Array& in, bool z, const ops::DeltaHeads& heads, Array& out) {
  const std::int64_t dk = heads.key_size, dv = std::int64_t{heads.value_heads / heads.key_heads} * heads.value_size;
  const std::int64_t group = 2 * dk + 2 * dv, width = in.columns(), nk = heads.key_heads;
  out.shape = {nk * group, width};
  out.values.resize(static_cast<std::size_t>(nk * group * width));
  const auto copy = [&](std::int64_t from, std::int64_t place, std::int64_t rows) {
    for (std::int64_t head = 0; head < nk; ++head) {
      std::copy_n(in.values.begin() + (from + head * rows) * width, rows * width,
                  out.values.begin() + (head * group + place) * width);
    }
  };
  if (z) return copy(0, 2 * dk + dv, dv);
  copy(0, 0, dk);
  copy(nk * dk, dk, dk);
  copy(2 * nk * dk, 2 * dk, dv);
}

// bfloat16, but for values out of blocks that it cannot hold.
FolderTensor folder_tensor(std::string name, const Array& array) {
  const bool exact = std::ranges::all_of(array.values, [](float x) { return bf16_to_f32(f32_to_bf16(x)) == x; });
  if (array.from_blocks && !exact) {
    const auto bytes = std::as_bytes(std::span(array.values));
    return {std::move(name), "F32", array.shape, {bytes.begin(), bytes.end()}};
  }
  FolderTensor tensor{std::move(name), "BF16", array.shape, std::vector<std::byte>(array.values.size() * 2)};
  for (std::size_t i = 0; i < array.values.size(); ++i) {
    const std::uint16_t bits = f32_to_bf16(array.values[i]);
    std::memcpy(tensor.bytes.data() + 2 * i, &bits, sizeof bits);
  }
  return tensor;
}

// Undoes what the converter did; two tensors may go into one.
void put(const Array& in, const model::TensorRow& row, const model::LayerParameters& layer, Array& out) {
  switch (row.transform) {
    case Transform::none: out = in; return;
    case Transform::interleave_query:
    case Transform::interleave_key: out = half_split(in, layer.head_size); return;
    case Transform::one_plus:
      out = in;
      for (float& value : out.values) value -= 1.0f;
      return;
    case Transform::negative_exp:
      out = in;
      for (float& value : out.values) value = std::log(-value);
      return;
    case Transform::transposed: put_transposed(in, 0, 1, out); return;
    case Transform::transposed_even: put_transposed(in, 0, 2, out); return;
    case Transform::transposed_odd: put_transposed(in, 1, 2, out); return;
    case Transform::delta_qkv: put_grouped(in, false, layer.delta, out); return;
    case Transform::delta_z: put_grouped(in, true, layer.delta, out); return;
  }
}

}  // namespace

std::vector<FolderTensor> folder_tensors(const model::Model& gguf) {
  const model::Hyperparameters& p = gguf.hyperparameters();
  std::vector<std::pair<std::string, Array>> arrays;
  for (const model::TensorRow& row : gguf.family().tensors(p)) {
    const bool per_layer = row.gguf.find('*') != std::string_view::npos;
    for (int i = 0; i < (per_layer ? p.layer_count() : 1); ++i) {
      const tensor::TensorView* view = gguf.weights().find(replaced(row.gguf, '*', i));
      if (view == nullptr || row.safetensors.empty()) continue;
      const std::string name = replaced(row.safetensors, '*', i);
      auto found = std::ranges::find(arrays, name, &std::pair<std::string, Array>::first);
      if (found == arrays.end()) found = arrays.insert(found, {name, {}});
      put(array_of(*view), row, p.layers[static_cast<std::size_t>(i)], found->second);
      if (row.gguf.ends_with("ssm_conv1d.weight")) found->second.shape.insert(found->second.shape.begin() + 1, 1);
      if (row.gguf.ends_with("inp_shexp.weight")) found->second.shape = {1, found->second.columns()};
    }
  }
  std::vector<FolderTensor> tensors;
  for (const auto& [name, array] : arrays) {
    if (name.find('#') == name.npos) {
      tensors.push_back(folder_tensor(name, array));
      continue;
    }
    const auto size = static_cast<std::ptrdiff_t>(array.values.size()) / array.shape[0];
    for (std::int64_t expert = 0; expert < array.shape[0]; ++expert) {
      const auto begin = array.values.begin() + expert * size;
      tensors.push_back(folder_tensor(replaced(name, '#', expert),
                                      {{array.shape[1], array.shape[2]}, {begin, begin + size}, array.from_blocks}));
    }
  }
  return tensors;
}

Digest digest_of(std::span<const FolderTensor> tensors) {
  std::vector<std::string> lines;
  for (const FolderTensor& tensor : tensors) {
    lines.push_back(fmt::format("{} {} [{}] {}\n", tensor.name, tensor.dtype, fmt::join(tensor.shape, ","),
                                to_hex(digest(tensor.bytes))));
  }
  std::ranges::sort(lines);
  return digest(fmt::format("{}", fmt::join(lines, "")));
}

std::vector<FolderTensor> read_tensors(const std::filesystem::path& file) {
  const SafetensorsFixture fixture = SafetensorsFixture::open(file);
  std::vector<FolderTensor> tensors;
  for (const std::string& name : fixture.names()) {
    const auto bytes = fixture.bytes(name);
    tensors.push_back({name, fixture.array(name).dtype, fixture.array(name).shape, {bytes.begin(), bytes.end()}});
  }
  return tensors;
}

}  // namespace adze::test
