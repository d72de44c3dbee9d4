#include "model/folder_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.hpp"
#include "model/tensors.hpp"
#include "tensor/blocks/mxfp4.hpp"

namespace adze::model {
namespace {

using tensor::DType;
using tensor::Shape;

// Which rows of a stored matrix make up the wanted one: first, first + step, ...
struct Rows {
  std::int64_t first, step;
};

Rows rows_of(Transform transform) {
  switch (transform) {
    case Transform::transposed_even: return {0, 2};
    case Transform::transposed_odd: return {1, 2};
    case Transform::none:
    case Transform::interleave_query:
    case Transform::interleave_key:
    case Transform::negative_exp:
    case Transform::one_plus:
    case Transform::transposed:
    case Transform::delta_qkv:
    case Transform::delta_z: return {0, 1};
  }
  ADZE_CHECK(false, "transform {}", static_cast<int>(transform));
}

// Room for a weight of this type and shape.
std::unique_ptr<MadeWeight> make_weight(std::string_view name, DType type, const Shape& shape) {
  auto made = std::make_unique<MadeWeight>();
  made->view = {.name = name, .type = type, .shape = shape, .bytes = {}};
  made->bytes.resize(made->view.size_bytes());
  made->view.bytes = made->bytes;
  return made;
}

// Room for a weight of another one's type, whose scales follow its codes.
std::unique_ptr<MadeWeight> make_weight(const tensor::TensorView& like, const Shape& shape) {
  auto made = std::make_unique<MadeWeight>();
  made->view = {.name = like.name, .type = like.type, .shape = shape, .bytes = {}, .groups = like.groups};
  made->bytes.resize(made->view.size_bytes());
  const auto rows = static_cast<std::size_t>(made->view.rows());
  made->view.bytes = std::span(made->bytes).first(rows * made->view.row_stride());
  std::byte* scales = made->bytes.data() + made->view.bytes.size();
  if (like.groups.scales != nullptr) made->view.groups.scales = scales;
  if (like.groups.biases != nullptr) made->view.groups.biases = scales + rows * made->view.scale_stride();
  return made;
}

// Rows first .. first + count of `from`, scales included, as rows `at` .. of what was made like it.
void copy_rows(const tensor::TensorView& from, std::int64_t first, std::int64_t count, MadeWeight& made,
               std::int64_t at) {
  const auto copy = [&](const std::byte* source, const std::byte* target, std::size_t stride) {
    std::byte* const to = made.bytes.data() + (target - made.bytes.data());
    std::memcpy(to, source, static_cast<std::size_t>(count) * stride);
  };
  const tensor::GroupScales source = from.groups_from(first), target = made.view.groups_from(at);
  copy(from.row(first), made.view.row(at), from.row_stride());
  if (source.scales != nullptr) copy(source.scales, target.scales, from.scale_stride());
  if (source.biases != nullptr) copy(source.biases, target.biases, from.scale_stride());
}

// out[r][c] = in[c][first + step r], elements of `size` bytes at any address. In tiles, so that both sides stay in the
// nearest cache: the rows of one side are kilobytes apart.
void transpose(const std::byte* in, std::int64_t in_columns, std::byte* out, std::int64_t rows, std::int64_t columns,
               Rows take, std::size_t size) {
  constexpr std::int64_t kTile = 32;
  const auto at = [size](std::int64_t element) { return static_cast<std::size_t>(element) * size; };
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
        for (std::int64_t c = c0; c < std::min(c0 + kTile, columns); ++c) {
          std::memcpy(out + at(r * columns + c), in + at(c * in_columns + take.first + take.step * r), size);
        }
      }
    }
  }
}

Status check_float(const tensor::TensorView& view) {
  if (view.type == DType::f32 || view.type == DType::f16 || view.type == DType::bf16) return {};
  return fail(ErrorCode::unsupported_type,
              fmt::format("tensor '{}' is of type {}, which Adze cannot rearrange", view.name,
                          tensor::dtype_info(view.type).name),
              "use the model's bfloat16 weights, or a GGUF of it");
}

// [outer, columns, step * rows] -> [outer, rows, columns];  [outer, step * columns] -> [outer, columns]
Result<std::unique_ptr<MadeWeight>> transposed(format::WeightStore& store, const std::string& name, const Shape& shape,
                                               Rows take, std::string_view why) {
  const bool vector = shape.rank == 2;
  const std::int64_t outer = shape[0], rows = shape[1], columns = vector ? 1 : shape[2];
  Shape stored = shape;
  if (!vector) stored.dims[1] = columns;
  stored.dims[static_cast<std::size_t>(shape.rank - 1)] = take.step * rows;
  ADZE_TRY(const tensor::TensorView* view, store.require(name, stored, why));
  ADZE_TRY_STATUS(check_float(*view));
  auto made = make_weight(view->name, view->type, shape);
  const std::size_t size = tensor::dtype_info(view->type).block_bytes;
  const std::size_t in_bytes = view->bytes.size() / static_cast<std::size_t>(outer);
  const std::size_t out_bytes = made->bytes.size() / static_cast<std::size_t>(outer);
  for (std::size_t i = 0; i < static_cast<std::size_t>(outer); ++i) {
    transpose(view->bytes.data() + i * in_bytes, take.step * rows, made->bytes.data() + i * out_bytes, rows, columns,
              take, size);
  }
  store.release_tensor(name);
  return made;
}

// MXFP4 in two tensors: blocks [outer, step * rows, columns / 32, 16] and scales [outer, step * rows, columns / 32].
Result<std::unique_ptr<MadeWeight>> mxfp4(format::WeightStore& store, const std::string& name, const Shape& shape,
                                          Rows take, std::string_view why) {
  using Block = tensor::blocks::MXFP4;
  const std::int64_t blocks = shape[2] / Block::kElements;
  if (shape[2] % Block::kElements != 0) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("tensor '{}_blocks' should have rows of {} values, no multiple of the {} of an MXFP4 block",
                            name, shape[2], Block::kElements),
                "the files of the folder do not belong together: get it again");
  }
  const Shape scales_shape{.dims = {shape[0], take.step * shape[1], blocks, 1}, .rank = 3};
  Shape codes_shape = scales_shape;
  codes_shape.dims[3] = sizeof(Block::qs);
  codes_shape.rank = 4;
  ADZE_TRY(const auto codes, store.require_part(name + "_blocks", "U8", codes_shape, why));
  ADZE_TRY(const auto scales, store.require_part(name + "_scales", "U8", scales_shape, why));
  auto made = make_weight(store.find(name + "_blocks")->name, DType::mxfp4, shape);
  std::byte* out = made->bytes.data();
  for (std::int64_t row = 0; row < shape[0] * shape[1]; ++row) {
    const std::int64_t stored = row / shape[1] * take.step * shape[1] + take.first + take.step * (row % shape[1]);
    for (std::int64_t b = stored * blocks; b < (stored + 1) * blocks; ++b, out += sizeof(Block)) {
      const auto at = static_cast<std::size_t>(b);
      const Block block = tensor::blocks::mxfp4_from_neighbours(std::to_integer<std::uint8_t>(scales[at]),
                                                                codes.data() + at * sizeof(Block::qs));
      std::memcpy(out, &block, sizeof block);
    }
  }
  for (const char* part : {"_blocks", "_scales"}) store.release_tensor(name + part);
  return made;
}

// From rows in the order [q: dk | k: dk | v: r dv | z: r dv] for each key head.
Result<std::unique_ptr<MadeWeight>> ungroup(format::WeightStore& store, const std::string& name, const Shape& shape,
                                            bool z, const ops::DeltaHeads& heads, std::string_view why) {
  const std::int64_t key = heads.key_size, value = heads.value_heads / heads.key_heads * std::int64_t{heads.value_size};
  const std::int64_t group = 2 * key + 2 * value;
  Shape stored = shape;
  stored.dims[0] = heads.key_heads * group;
  ADZE_TRY(const tensor::TensorView* view, store.require(name, stored, why));
  auto made = make_weight(*view, shape);
  std::int64_t at = 0;
  const auto append = [&](std::int64_t first, std::int64_t count) {  // these rows of each group
    for (int head = 0; head < heads.key_heads; ++head, at += count) {
      copy_rows(*view, head * group + first, count, *made, at);
    }
  };
  if (z) {
    append(2 * key + value, value);
  } else {
    append(0, key);
    append(key, key);
    append(2 * key, value);
  }
  store.release_tensor(name);
  return made;
}

}  // namespace

Result<std::unique_ptr<MadeWeight>> stack_experts(format::WeightStore& store, std::string_view pattern,
                                                  const Shape& shape, std::string_view why) {
  const Shape each{.dims = {shape[1], shape[2], 1, 1}, .rank = 2};
  const std::size_t mark = pattern.find('#');
  auto made = std::make_unique<MadeWeight>();
  for (std::int64_t expert = 0; expert < shape[0]; ++expert) {
    const std::string name = fmt::format("{}{}{}", pattern.substr(0, mark), expert, pattern.substr(mark + 1));
    ADZE_TRY(const tensor::TensorView* view, store.require(name, each, why));
    if (expert == 0) made->view = *view;
    if (view->type != made->view.type) {
      return fail(
          ErrorCode::unsupported_type,
          fmt::format("tensor '{}' is of type {}, but '{}' of {}: Adze wants all experts of a layer of one type", name,
                      tensor::dtype_info(view->type).name, made->view.name, tensor::dtype_info(made->view.type).name),
          "convert the model again");
    }
    if (view->groups.size != 0) {
      return fail(ErrorCode::unsupported_feature,
                  fmt::format("tensor '{}' is one expert's and in {}: Adze reads MLX's experts from one tensor a layer",
                              name, tensor::type_name(*view)),
                  "convert the model with mlx-lm, which stacks them as switch_mlp");
    }
    made->slices.push_back(view->bytes.data());
  }
  made->view.shape = shape;
  made->view.bytes = {};
  made->view.slices = made->slices;
  return made;
}

bool is_rearranged(Transform transform) {
  switch (transform) {
    case Transform::none:
    case Transform::interleave_query:
    case Transform::interleave_key:
    case Transform::negative_exp:
    case Transform::one_plus: return false;
    case Transform::transposed:
    case Transform::transposed_even:
    case Transform::transposed_odd:
    case Transform::delta_qkv:
    case Transform::delta_z: return true;
  }
  ADZE_CHECK(false, "transform {}", static_cast<int>(transform));
}

Result<std::unique_ptr<MadeWeight>> rearrange(format::WeightStore& store, const std::string& name, const Shape& shape,
                                              Transform transform, const ops::DeltaHeads& heads, std::string_view why) {
  if (transform == Transform::delta_qkv || transform == Transform::delta_z) {
    return ungroup(store, name, shape, transform == Transform::delta_z, heads, why);
  }
  const bool in_parts = store.find(name) == nullptr && store.find(name + "_blocks") != nullptr;
  return in_parts ? mxfp4(store, name, shape, rows_of(transform), why)
                  : transposed(store, name, shape, rows_of(transform), why);
}

}  // namespace adze::model
