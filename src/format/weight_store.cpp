#include "format/weight_store.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <system_error>

#include "base/limits.hpp"

namespace adze::format {
namespace {

// One line of a source's identity.
std::string identity_of(const std::filesystem::path& path, std::span<const std::byte> header, std::uint64_t bytes) {
  std::error_code ignored;
  const auto changed =
      path.empty() ? std::filesystem::file_time_type{} : std::filesystem::last_write_time(path, ignored);
  return fmt::format("{} {} {}\n", to_hex(digest(header)), bytes,
                     std::chrono::nanoseconds(changed.time_since_epoch()).count());
}

constexpr const char* kContradiction = "tensor and metadata contradict each other: download or convert the model again";

tl::unexpected<Error> missing(std::string_view name, const tensor::Shape& expected, std::string_view why) {
  return fail(
      ErrorCode::corrupt_file,
      fmt::format("tensor '{}' {} is missing from the model (implied by {})", name, format_shape(expected), why),
      "the model is incomplete or was converted for another program: download or convert it again");
}

// Dimensions of 1 move no value: converters write them or not, and a depthwise convolution is [channels, 1, K] for
// transformers, [channels, K, 1] for MLX and [channels, K] here.
bool same_shape(tensor::Shape a, tensor::Shape b) {
  for (tensor::Shape* shape : {&a, &b}) {
    const auto end = std::remove(shape->dims.begin(), shape->dims.end(), 1);
    std::fill(end, shape->dims.end(), 1);
    shape->rank = 0;
  }
  return a == b;
}

}  // namespace

Result<WeightStore> WeightStore::open(const std::filesystem::path& path, MapOptions options) {
  ADZE_TRY(GgufFile file, GgufFile::open(path, options));
  return WeightStore(std::move(file));
}

WeightStore::WeightStore(GgufFile file) : file_(std::move(file)) {
  std::string identity;
  for (const GgufShard& shard : file_.shards())
    identity += identity_of(shard.map.path(), shard.bytes.first(shard.data_offset), shard.bytes.size());
  digest_ = digest(identity);
  views_.reserve(file_.tensors().size());
  for (const GgufTensor& tensor : file_.tensors()) views_.push_back(tensor.view);
  index();
}

// A view that could not be made keeps its place in the file's order; whoever asks for it is told why.
void WeightStore::add(Result<tensor::TensorView> view, const SafetensorsTensor& tensor) {
  if (!view) {
    no_weights_.emplace_back(static_cast<std::uint32_t>(views_.size()), std::move(view.error()));
    view = tensor::TensorView{.name = tensor.name, .type = tensor::DType::i8, .shape = {}, .bytes = tensor.bytes};
  }
  views_.push_back(*view);
}

Result<WeightStore> WeightStore::from_folder(SafetensorsFolder folder, std::string metadata,
                                             std::optional<MlxQuantisation> mlx) {
  WeightStore store;
  store.mlx_ = std::move(mlx);
  store.metadata_bytes_ = std::make_unique<const std::string>(std::move(metadata));
  store.folder_ = std::make_unique<const SafetensorsFolder>(std::move(folder));
  const auto bytes = std::as_bytes(std::span(*store.metadata_bytes_));
  ADZE_TRY(store.file_, GgufFile::parse(bytes, store.folder_->path().string()));
  std::string identity = to_hex(digest(bytes)) + "\n";
  for (const SafetensorsFile& shard : store.folder_->shards()) {
    identity += identity_of(shard.path(), shard.header(), shard.file_bytes());
    for (const SafetensorsTensor& tensor : shard.tensors()) {
      if (store.mlx_ && MlxQuantisation::codes_of(tensor, *store.folder_) != nullptr) continue;
      const bool codes = store.mlx_ && MlxQuantisation::is_codes(tensor);
      store.add(codes ? store.mlx_->weight(tensor, *store.folder_) : tensor.view(), tensor);
    }
  }
  for (const tensor::TensorView& view : store.views_) {  // config.json says how codes are read
    if (view.groups.size != 0) identity += tensor::type_name(view) + "\n";
  }
  store.digest_ = digest(identity);
  store.index();
  return store;
}

void WeightStore::index() {
  taken_.resize(views_.size());
  by_name_.resize(views_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::ranges::sort(by_name_, {}, [this](std::uint32_t i) { return views_[i].name; });
}

const std::filesystem::path& WeightStore::path() const {
  return folder_ ? folder_->path() : file_.shards().front().map.path();
}

std::uint64_t WeightStore::file_bytes() const { return folder_ ? folder_->file_bytes() : file_.file_bytes(); }

std::vector<std::filesystem::path> WeightStore::weight_files() const {
  std::vector<std::filesystem::path> files;
  if (folder_) {
    for (const SafetensorsFile& shard : folder_->shards()) files.push_back(shard.path());
  } else {
    for (const GgufShard& shard : file_.shards()) files.push_back(shard.map.path());
  }
  return files;
}

std::uint64_t WeightStore::tensor_bytes() const {
  std::uint64_t total = 0;
  for (const tensor::TensorView& view : views_) total += view.size_bytes();
  return total;
}

const tensor::TensorView* WeightStore::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(by_name_, name, {}, [this](std::uint32_t i) { return views_[i].name; });
  return at != by_name_.end() && views_[*at].name == name ? &views_[*at] : nullptr;
}

Result<const tensor::TensorView*> WeightStore::require(std::string_view name, const tensor::Shape& expected,
                                                       std::string_view why) {
  ADZE_TRY(const tensor::TensorView* view, optional(name, expected, why));
  if (view == nullptr) return missing(name, expected, why);
  return view;
}

Result<const tensor::TensorView*> WeightStore::optional(std::string_view name, const tensor::Shape& expected,
                                                        std::string_view why) {
  const tensor::TensorView* found = find(name);
  if (found == nullptr) return nullptr;
  const auto position = static_cast<std::uint32_t>(found - views_.data());
  const auto refused = std::ranges::find(no_weights_, position, &std::pair<std::uint32_t, Error>::first);
  if (refused != no_weights_.end()) return tl::unexpected<Error>(refused->second);
  if (mlx_ && !same_shape(found->shape, expected)) {
    const auto other = mlx_->with_columns(*found, expected[expected.rank - 1]);
    if (other) views_[position] = *other;
  }
  // Rows of blocks, or of codes whose scales stand beside them, cannot be cut anew.
  const bool cut = found->groups.size != 0 || tensor::is_block_type(found->type);
  const bool other_rows = cut && found->columns() != expected[expected.rank - 1];
  if (other_rows || !same_shape(found->shape, expected)) {
    const std::string as = found->groups.size == 0 ? "" : fmt::format(" as {}", tensor::type_name(*found));
    return fail(ErrorCode::corrupt_file,
                fmt::format("tensor '{}' has the shape {}{}, expected {} (implied by {})", name,
                            format_shape(found->shape), as, format_shape(expected), why),
                kContradiction);
  }
  views_[position].shape = expected;
  taken_[position] = true;
  return found;
}

Result<std::span<const std::byte>> WeightStore::require_part(std::string_view name, std::string_view element_type,
                                                             const tensor::Shape& expected, std::string_view why) {
  const SafetensorsTensor* found = folder_->find(name);
  if (found == nullptr) return missing(name, expected, why);
  const auto dims = std::span(expected.dims).first(static_cast<std::size_t>(expected.rank));
  if (found->dtype != element_type || !std::ranges::equal(found->shape, dims)) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("tensor '{}' is {} [{}], expected {} {} (implied by {})", name, found->dtype,
                            fmt::join(found->shape, ", "), element_type, format_shape(expected), why),
                kContradiction);
  }
  taken_[static_cast<std::size_t>(find(name) - views_.data())] = true;
  return found->bytes;
}

std::vector<std::string_view> WeightStore::unused() const {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i]) names.push_back(views_[i].name);
  }
  return names;
}

std::uint64_t WeightStore::taken_bytes() const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) total += views_[i].size_bytes();
  }
  return total;
}

void WeightStore::release_headers() const {
  for (const GgufShard& shard : file_.shards()) shard.map.release(0, shard.data_offset);
}

void WeightStore::release_tensor(std::string_view name) const {
  const SafetensorsTensor* tensor = folder_ ? folder_->find(name) : nullptr;
  if (tensor == nullptr) return;
  folder_->release(name);
  if (!mlx_ || !MlxQuantisation::is_codes(*tensor)) return;
  for (const std::string& part : MlxQuantisation::names_beside(name)) folder_->release(part);
}

void WeightStore::release_all() const {
  for (const GgufShard& shard : file_.shards()) shard.map.release_all();
  if (!folder_) return;
  for (const SafetensorsFile& shard : folder_->shards()) shard.release_all();
}

bool WeightStore::read(const std::byte* at, std::span<std::byte> into) const {
  const auto reads = [&](const auto& file) { return file.read(at, into); };
  if (folder_) return std::ranges::any_of(folder_->shards(), reads);
  return std::ranges::any_of(file_.shards(), [&](const GgufShard& shard) { return reads(shard.map); });
}

void WeightStore::hold_vectors() {
  constexpr std::size_t kSmall = 64u << 10, kAlignment = 64;
  const auto padded = [](std::size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; };
  std::vector<tensor::TensorView*> vectors;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const std::size_t size = views_[i].bytes.size();
    if (!taken_[i] || views_[i].rows() != 1 || size == 0 || size > kSmall ||
        bytes + padded(size) > limits::kMaxHeldTensorBytes)
      continue;
    vectors.push_back(&views_[i]);
    bytes += padded(size);
    prefetch_pages(views_[i].bytes);  // not one after the other: Qwen3 0.6B would start 150 ms later from a disk
  }
  held_ = std::make_unique<std::byte[]>(bytes + kAlignment);
  std::byte* at = held_.get();
  at += padded(reinterpret_cast<std::uintptr_t>(at)) - reinterpret_cast<std::uintptr_t>(at);
  for (tensor::TensorView* view : vectors) {
    std::ranges::copy(view->bytes, at);
    view->bytes = {at, view->bytes.size()};
    at += padded(view->bytes.size());
  }
}

std::string format_shape(const tensor::Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

}  // namespace adze::format
