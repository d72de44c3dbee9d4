#include "format/importance_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.hpp"
#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"

namespace adze::format {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr std::string_view kDatasets = "imatrix.datasets", kChunkCount = "imatrix.chunk_count",
                           kChunkSize = "imatrix.chunk_size";

tl::unexpected<Error> damaged(const std::filesystem::path& path, std::string_view what) {
  return fail(ErrorCode::corrupt_file, fmt::format("importance matrix '{}': {}", path.string(), what),
              "Make it again with adze imatrix.");
}

Status check_entry(const std::filesystem::path& path, std::string_view name, const InputStatistics& entry) {
  if (entry.counts.empty() || entry.sums.empty() || entry.sums.size() % entry.counts.size() != 0) {
    return damaged(
        path, fmt::format("'{}' has {} sums for {} counts", printable(name), entry.sums.size(), entry.counts.size()));
  }
  const auto sound = [](float v) { return std::isfinite(v) && v >= 0.0f; };
  if (!std::ranges::all_of(entry.sums, sound) || !std::ranges::all_of(entry.counts, sound)) {
    return damaged(path, fmt::format("'{}' holds a number that is negative or not finite", printable(name)));
  }
  return {};
}

Result<std::vector<float>> floats_of(const std::filesystem::path& path, const tensor::TensorView& view) {
  if (view.type != tensor::DType::f32) {
    return damaged(path, fmt::format("'{}' is {}, not F32", printable(view.name), tensor::dtype_info(view.type).name));
  }
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

Result<ImportanceMatrix> read_gguf(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  ADZE_TRY(const GgufFile file, GgufFile::parse(bytes, path.string()));
  ImportanceMatrix matrix;
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.view.name;
    const bool sums = name.ends_with(kSums);
    if (!sums && !name.ends_with(kCounts)) continue;
    const std::string_view weight = name.substr(0, name.size() - (sums ? kSums : kCounts).size());
    InputStatistics& entry = matrix.entries[std::string(weight)];
    ADZE_TRY((sums ? entry.sums : entry.counts), floats_of(path, tensor.view));
  }
  ADZE_TRY(const std::string_view type, file.metadata().get_string_or("general.type", ""));
  if (matrix.entries.empty() || (!type.empty() && type != "imatrix")) {
    return fail(ErrorCode::not_a_model, fmt::format("'{}' is a GGUF file, but no importance matrix", path.string()),
                "Make one with adze imatrix MODEL -f TEXT -o FILE.");
  }
  for (const auto& [name, entry] : matrix.entries) ADZE_TRY_STATUS(check_entry(path, name, entry));
  if (file.metadata().has(kDatasets)) {
    ADZE_TRY(const StringArray datasets, file.metadata().get_strings(kDatasets));
    for (const std::string_view dataset : datasets) matrix.datasets.emplace_back(dataset);
  }
  ADZE_TRY(const std::uint64_t chunks, file.metadata().get_u64_or(kChunkCount, 0));
  ADZE_TRY(const std::uint64_t size, file.metadata().get_u64_or(kChunkSize, 0));
  matrix.chunk_count = static_cast<std::uint32_t>(chunks);
  matrix.chunk_size = static_cast<std::uint32_t>(size);
  return matrix;
}

// The older form: i32 entries, then per entry i32 length and name, i32 chunks, i32 values and those as f32; then i32
// chunks of the whole and i32 length and name of the text, which may be missing.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  bool read(std::int32_t& value) { return copy(&value, sizeof value); }
  bool read(std::string& text) {
    std::int32_t length = 0;
    if (!read(length) || length < 0 || static_cast<std::size_t>(length) > rest_.size()) return false;
    text.resize(static_cast<std::size_t>(length));
    return copy(text.data(), text.size());
  }
  bool read(std::vector<float>& values) {
    std::int32_t count = 0;
    if (!read(count) || count < 1 || static_cast<std::size_t>(count) > rest_.size() / sizeof(float)) return false;
    values.resize(static_cast<std::size_t>(count));
    return copy(values.data(), values.size() * sizeof(float));
  }

 private:
  bool copy(void* to, std::size_t size) {
    if (size > rest_.size()) return false;
    std::memcpy(to, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return true;
  }
  std::span<const std::byte> rest_;
};

Result<ImportanceMatrix> read_records(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  RecordReader reader(bytes);
  std::int32_t count = 0;
  if (!reader.read(count) || count < 1) {
    return fail(ErrorCode::not_a_model, fmt::format("'{}' is no importance matrix", path.string()),
                "Make one with adze imatrix MODEL -f TEXT -o FILE.");
  }
  ImportanceMatrix matrix;
  for (std::int32_t i = 0; i < count; ++i) {
    std::string name;
    std::int32_t chunks = 0;
    InputStatistics entry;
    if (!reader.read(name) || !reader.read(chunks) || !reader.read(entry.sums)) {
      return damaged(path, fmt::format("it ends in entry {} of {}", i + 1, count));
    }
    entry.counts = {static_cast<float>(std::max(chunks, 1))};
    ADZE_TRY_STATUS(check_entry(path, name, entry));
    matrix.entries.insert_or_assign(std::move(name), std::move(entry));
  }
  std::int32_t chunks = 0;
  std::string dataset;
  if (reader.read(chunks)) matrix.chunk_count = static_cast<std::uint32_t>(std::max(chunks, 0));
  if (!reader.at_end() && reader.read(dataset)) matrix.datasets.push_back(std::move(dataset));
  return matrix;
}

// From chunks to tokens, where one of two files counts in chunks.
float scale_of(const ImportanceMatrix& from, const ImportanceMatrix& other) {
  return from.chunk_size == 0 && other.chunk_size != 0 ? static_cast<float>(other.chunk_size) : 1.0f;
}

void multiply(InputStatistics& entry, float factor) {
  for (float& v : entry.sums) v *= factor;
  for (float& v : entry.counts) v *= factor;
}

}  // namespace

std::vector<float> InputStatistics::mean_squares() const {
  std::vector<float> means(sums.size());
  const std::size_t columns = sums.size() / counts.size();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float count = counts[i / columns];
    means[i] = count > 0.0f ? sums[i] / count : 1.0f;
  }
  return means;
}

Result<ImportanceMatrix> ImportanceMatrix::open(const std::filesystem::path& path) {
  ADZE_TRY(const MappedFile file, MappedFile::open(path));
  const bool is_gguf = file.bytes().size() >= 4 && std::memcmp(file.bytes().data(), "GGUF", 4) == 0;
  return is_gguf ? read_gguf(path, file.bytes()) : read_records(path, file.bytes());
}

Status ImportanceMatrix::write(const std::filesystem::path& path) const {
  for (const auto& [name, entry] : entries) ADZE_TRY_STATUS(check_entry(path, name, entry));
  GgufWriter writer;
  writer.add_string("general.type", "imatrix");
  writer.add_strings(kDatasets, datasets);
  writer.add_u32(kChunkCount, chunk_count);
  writer.add_u32(kChunkSize, chunk_size);
  for (const auto& [name, entry] : entries) {
    const auto matrices = std::ssize(entry.counts);
    const tensor::Shape sums{.dims = {matrices, std::ssize(entry.sums) / matrices, 1, 1}, .rank = 2};
    const tensor::Shape counts{.dims = {matrices, 1, 1, 1}, .rank = 2};
    writer.add_tensor(name + std::string(kSums), tensor::DType::f32, sums, std::as_bytes(std::span(entry.sums)));
    writer.add_tensor(name + std::string(kCounts), tensor::DType::f32, counts, std::as_bytes(std::span(entry.counts)));
  }
  return writer.write(path);
}

Status ImportanceMatrix::add(const ImportanceMatrix& other) {
  const float mine = scale_of(*this, other), theirs = scale_of(other, *this);
  for (const auto& [name, added] : other.entries) {
    const auto found = entries.find(name);
    if (found == entries.end() || found->second.sums.size() == added.sums.size()) continue;
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' has {} columns in one importance matrix and {} in another", printable(name),
                            found->second.sums.size(), added.sums.size()),
                "They were made from different models: take those of one.");
  }
  if (mine != 1.0f) {
    for (auto& [name, entry] : entries) multiply(entry, mine);
  }
  for (const auto& [name, added] : other.entries) {
    InputStatistics from = added;
    multiply(from, theirs);
    const auto [at, is_new] = entries.try_emplace(name, from);
    if (is_new) continue;
    InputStatistics& entry = at->second;
    // One count for all experts stands for each of them.
    const std::size_t matrices = std::max(entry.counts.size(), from.counts.size());
    if (entry.counts.size() == 1) entry.counts.resize(matrices, entry.counts[0]);
    if (from.counts.size() == 1) from.counts.resize(matrices, from.counts[0]);
    if (entry.counts.size() != from.counts.size()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("'{}' has {} experts in one importance matrix and {} in another", printable(name),
                              entry.counts.size(), from.counts.size()),
                  "They were made from different models: take those of one.");
    }
    for (std::size_t i = 0; i < entry.sums.size(); ++i) entry.sums[i] += from.sums[i];
    for (std::size_t i = 0; i < matrices; ++i) entry.counts[i] += from.counts[i];
  }
  datasets.insert(datasets.end(), other.datasets.begin(), other.datasets.end());
  chunk_count += other.chunk_count;
  chunk_size = std::max(chunk_size, other.chunk_size);
  return {};
}

Result<std::vector<float>> ImportanceMatrix::weights_for(std::string_view name, const tensor::Shape& shape) const {
  const auto found = entries.find(name);
  if (found == entries.end()) return std::vector<float>{};
  const std::int64_t columns = shape.rank == 0 ? 1 : shape[shape.rank - 1];
  const std::int64_t matrices = shape.rank > 2 ? shape[shape.rank - 3] : 1;
  if (std::ssize(found->second.sums) != matrices * columns) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the importance matrix has {} columns for '{}', which has {}", found->second.sums.size(),
                            printable(name), matrices * columns),
                "It was made from another model: make one from this model with adze imatrix.");
  }
  return found->second.mean_squares();
}

}  // namespace adze::format
