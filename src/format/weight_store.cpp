#include "format/weight_store.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

namespace adze::format {
namespace {

Digest digest_source(const GgufFile& file) {
  std::string identity;
  for (const GgufShard& shard : file.shards()) {
    std::error_code ignored;
    const auto changed = shard.map.path().empty() ? std::filesystem::file_time_type{}
                                                  : std::filesystem::last_write_time(shard.map.path(), ignored);
    identity += fmt::format("{} {} {}\n", to_hex(digest(shard.bytes.first(shard.data_offset))), shard.bytes.size(),
                            std::chrono::nanoseconds(changed.time_since_epoch()).count());
  }
  return digest(identity);
}

// GGUF's own sense: outer dimensions of 1 count for nothing, and converters write them or not.
bool same_shape(tensor::Shape a, tensor::Shape b) {
  for (tensor::Shape* shape : {&a, &b}) {
    while (shape->rank > 1 && shape->dims[0] == 1) {
      std::rotate(shape->dims.begin(), shape->dims.begin() + 1, shape->dims.end());
      --shape->rank;
    }
  }
  return a == b;
}

}  // namespace

Result<WeightStore> WeightStore::open(const std::filesystem::path& path, MapOptions options) {
  ADZE_TRY(GgufFile file, GgufFile::open(path, options));
  return WeightStore(std::move(file));
}

WeightStore::WeightStore(GgufFile file)
    : file_(std::move(file)), taken_(file_.tensors().size()), digest_(digest_source(file_)) {}

const tensor::TensorView* WeightStore::find(std::string_view name) const {
  const GgufTensor* found = file_.find_tensor(name);
  return found == nullptr ? nullptr : &found->view;
}

Result<const tensor::TensorView*> WeightStore::require(std::string_view name, const tensor::Shape& expected,
                                                       std::string_view why) {
  ADZE_TRY(const tensor::TensorView* view, optional(name, expected, why));
  if (view == nullptr) {
    return fail(
        ErrorCode::corrupt_file,
        fmt::format("tensor '{}' {} is missing from the model (implied by {})", name, format_shape(expected), why),
        "the file is incomplete or was converted for another program: download or convert it again");
  }
  return view;
}

Result<const tensor::TensorView*> WeightStore::optional(std::string_view name, const tensor::Shape& expected,
                                                        std::string_view why) {
  const GgufTensor* found = file_.find_tensor(name);
  if (found == nullptr) return nullptr;
  if (!same_shape(found->view.shape, expected)) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("tensor '{}' has the shape {}, expected {} (implied by {})", name,
                            format_shape(found->view.shape), format_shape(expected), why),
                "tensor and metadata contradict each other: download or convert the model again");
  }
  taken_[static_cast<std::size_t>(found - file_.tensors().data())] = true;
  return &found->view;
}

std::vector<std::string_view> WeightStore::unused() const {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i]) names.push_back(file_.tensors()[i].view.name);
  }
  return names;
}

std::uint64_t WeightStore::taken_bytes() const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) total += file_.tensors()[i].view.bytes.size();
  }
  return total;
}

std::string format_shape(const tensor::Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

}  // namespace adze::format
