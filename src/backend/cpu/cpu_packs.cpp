#include "backend/cpu/cpu_packs.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_matmul.hpp"

namespace adze::cpu {
namespace {

// The order of bytes in kernels/packed.inl.h: every change of it is another version.
constexpr std::string_view kLayout = "packed16-v1";

// Enough for pack_group() of any of the schedule's weights, by one thread at a time.
class PackScratch {
 public:
  explicit PackScratch(const CpuSchedule& schedule) {
    std::size_t size = 64;
    for (const auto& weight : schedule.packed) size = std::max(size, pack_scratch_bytes(*weight) + 64);
    bytes_.resize(size);
  }
  std::byte* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (Arena::rounded(at) - at);
  }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<std::span<const std::byte>> bytes_of(const tensor::TensorView& weight) {
  std::vector<std::span<const std::byte>> spans;
  const auto rows = static_cast<std::size_t>(weight.rows());
  const std::size_t bytes = rows * weight.row_stride(), scales = rows * weight.scale_stride();
  if (weight.slices.empty()) spans.emplace_back(weight.bytes.data(), bytes);
  for (const std::byte* slice : weight.slices) spans.emplace_back(slice, bytes / weight.slices.size());
  if (weight.groups.scales != nullptr) spans.emplace_back(weight.groups.scales, scales);
  if (weight.groups.biases != nullptr) spans.emplace_back(weight.groups.biases, scales);
  return spans;
}

}  // namespace

std::size_t pack_scratch_bytes(const PackedWeight& weight) {
  return weight.kernel->panel_bytes(static_cast<int>(weight.weight->columns()), weight.weight->row_stride());
}

void pack_group(const PackedWeight& weight, int group, std::byte* out, std::byte* scratch) {
  const std::int64_t rows = weight.weight->rows() / weight.slices, first = group / weight.groups * rows;
  const BoundMatmul whole{weight.kernel, weight.weight, nullptr, nullptr};
  MatmulArgs a = matmul_args(whole, {}, 0, nullptr, 0, false, scratch);
  a.weights = weight.weight->row(first);
  a.groups = weight.weight->groups_from(first);
  a.rows = static_cast<int>(rows);
  weight.kernel->pack(a, group % weight.groups, out);
}

Result<Arena> pack_in_memory(const CpuSchedule& schedule) {
  std::size_t size = 0;
  for (const auto& weight : schedule.packed) size += Arena::rounded(weight->size());
  ADZE_TRY(Arena packs, Arena::reserve(size, true));
  PackScratch scratch(schedule);
  for (const auto& weight : schedule.packed) {
    auto* const to = packs.take<std::byte>(weight->size());
    for (int group = 0; group < weight->slices * weight->groups; ++group) {
      pack_group(*weight, group, to + static_cast<std::size_t>(group) * weight->group_bytes, scratch.data());
    }
    weight->bytes = to;
  }
  return packs;
}

namespace {

// Of passes between two releases of the model's file.
constexpr int kRowsBetweenReleases = 256;

// The longest row of an embedding that is read beside the map: 9,600 values of Q8_0, 5,120 of 16 bits.
constexpr std::size_t kMaxRowBytes = 10u << 10;

// The file of the schedule's packed weights, in the order of schedule.packed.
std::unique_ptr<PackStore> open_packs(const CpuSchedule& schedule, backend::PackOptions options) {
  std::vector<PackItem> items;
  if (!options.directory.empty()) {
    const auto scratch = std::make_shared<PackScratch>(schedule);
    for (const auto& weight : schedule.packed) {
      items.push_back({.name = std::string(weight->weight->name),
                       .type = tensor::type_name(*weight->weight),
                       .sources = bytes_of(*weight->weight),
                       .group_bytes = weight->group_bytes,
                       .groups = weight->slices * weight->groups,
                       .pack = [weight = weight.get(), scratch](int group, std::byte* out) {
                         pack_group(*weight, group, out, scratch->data());
                       }});
    }
  }
  return std::make_unique<PackStore>(std::move(options), kLayout, std::move(items));
}

}  // namespace

FilePacks::FilePacks(const CpuSchedule& schedule, backend::PackOptions options)
    : schedule_(schedule),
      release_(options.release),
      read_(options.read),
      store_(open_packs(schedule, std::move(options))) {}

std::uint64_t FilePacks::before_pass(int rows) {
  if (!store_->ready()) return 0;
  if (!in_use_) {
    release_file();  // first: both copies of the weights together would be the peak of this process
    for (std::size_t i = 0; i < schedule_.packed.size(); ++i) schedule_.packed[i]->bytes = store_->packed(i);
    in_use_ = true;
  }
  // What is still read there and cannot be read beside the map, comes with up to 2 MiB around it.
  rows_since_release_ += rows;
  if (rows_since_release_ > kRowsBetweenReleases) release_file();
  return store_->packed_bytes();
}

void FilePacks::dequantise_row(const tensor::TensorView& table, std::int64_t row, float* out) const {
  std::array<std::byte, kMaxRowBytes> bytes;
  const std::size_t size = table.row_stride();
  if (in_use_ && read_ && size <= bytes.size() && table.groups.size == 0 &&
      read_(table.row(row), std::span(bytes).first(size))) {
    tensor::dequantise_row(table.type, bytes.data(), out, table.columns());
  } else {
    tensor::dequantise_row(table, row, out);
  }
}

bool FilePacks::all_read_packed() const {
  return std::ranges::all_of(schedule_.products, [](const auto& of_step) {
    return std::ranges::all_of(of_step, [](const BoundMatmul& m) { return m.packed != nullptr && m.tuning->packed; });
  });
}

void FilePacks::release_file() {
  rows_since_release_ = 0;
  if (release_ && all_read_packed()) release_();
}

}  // namespace adze::cpu
