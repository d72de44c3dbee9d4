#include "format/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "format/foreign.hpp"
#include "format/metadata.hpp"
#include "format/safetensors_header.hpp"

namespace adze::format {
namespace {

using tensor::DType;

struct ElementType {
  std::string_view name;
  std::uint32_t bits;
  std::optional<DType> dtype;
};
constexpr ElementType kElementTypes[] = {
    {"BOOL", 8, {}},         {"F4", 4, {}},           {"F6_E2M3", 6, {}},        {"F6_E3M2", 6, {}},
    {"U8", 8, {}},           {"I8", 8, DType::i8},    {"F8_E5M2", 8, {}},        {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},  {"F8_E5M2FNUZ", 8, {}},    {"I16", 16, DType::i16},
    {"U16", 16, {}},         {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16}, {"I32", 32, DType::i32},
    {"U32", 32, {}},         {"F32", 32, DType::f32}, {"C64", 64, {}},           {"F64", 64, DType::f64},
    {"I64", 64, DType::i64}, {"U64", 64, {}},
};

const ElementType* find_element_type(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                         [&](const ElementType& type) { return type.name == name; });
  return found == std::end(kElementTypes) ? nullptr : found;
}

// The bytes that shape and type need; nothing on overflow. The order of multiplication is that of the dimensions.
std::optional<std::uint64_t> needed_bits(const SafetensorsRecord& record, std::uint32_t bits) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t product = 1;
  for (const std::uint64_t dim : record.shape) {
    if (dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    if (dim != 0 && product > kMax / dim) return std::nullopt;
    product *= dim;
  }
  if (product > kMax / bits) return std::nullopt;
  return product * bits;
}

// One record against the data: it must start where the one before it ended. Returns where it ends.
Result<std::uint64_t> check_record(const SafetensorsRecord& record, std::uint64_t begin, std::uint64_t data_bytes) {
  const std::string what = fmt::format("tensor '{}'", printable(record.name));
  const auto corrupt = [&](std::string problem) {
    return fail(ErrorCode::corrupt_file, fmt::format("{} {}", what, problem));
  };
  const ElementType* type = find_element_type(record.dtype);
  if (type == nullptr) {
    return fail(ErrorCode::unsupported_type,
                fmt::format("{} has the unknown type '{}'", what, printable(record.dtype)));
  }
  const auto [start, end] = record.offsets;
  if (end < start) return corrupt(fmt::format("ends at {} before it starts at {}", end, start));
  if (start != begin) {
    return corrupt(fmt::format(
        "starts at {}, but the data before it ends at {}: tensors may neither overlap nor leave holes", start, begin));
  }
  const auto bits = needed_bits(record, type->bits);
  if (!bits) return corrupt("has a shape whose size overflows");
  if (*bits % 8 != 0) return corrupt("does not end at a whole byte");
  if (*bits / 8 != end - start) {
    return corrupt(fmt::format("needs {} bytes for its shape, its offsets span {}", *bits / 8, end - start));
  }
  if (end > data_bytes)
    return corrupt(fmt::format("ends past the end of the file: {} bytes are missing", end - data_bytes));
  return end;
}

}  // namespace

Result<tensor::TensorView> SafetensorsTensor::view() const {
  const ElementType* type = find_element_type(dtype);
  if (type == nullptr || !type->dtype) {
    return fail(ErrorCode::unsupported_type,
                fmt::format("tensor '{}' is of type {}, which Adze does not compute with", printable(name), dtype),
                "use the model's bfloat16 weights, or a GGUF of it");
  }
  tensor::TensorView view{name, *type->dtype, {}, bytes};
  if (shape.size() > view.shape.dims.size() || bytes.empty()) {
    return fail(ErrorCode::unsupported_feature,
                fmt::format("tensor '{}' has {} dimensions and {} bytes", printable(name), shape.size(), bytes.size()));
  }
  view.shape.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.dims.begin());
  return view;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string_view name) {
  const auto refuse = [&](Error error) {
    error.message = fmt::format("'{}': {}", name, error.message);
    if (error.hint.empty()) error.hint = "the file is damaged or incomplete: download it again";
    return tl::unexpected(std::move(error));
  };
  std::uint64_t header_bytes = 0;
  if (bytes.size() >= sizeof header_bytes) std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (bytes.size() < 10 || static_cast<char>(bytes[8]) != '{') {
    ForeignFile foreign = recognise_foreign(bytes);
    return refuse(
        {ErrorCode::not_a_model, fmt::format("not a safetensors file: it is {}", foreign.what), foreign.hint});
  }
  if (header_bytes > bytes.size() - 8) {
    return refuse({ErrorCode::corrupt_file,
                   fmt::format("its header claims {} bytes, but only {} follow", header_bytes, bytes.size() - 8), ""});
  }
  if (header_bytes > limits::kSafetensorsMaxHeaderBytes) {
    return refuse({ErrorCode::limit_exceeded,
                   fmt::format("its header has {} bytes, more than the limit of {}", header_bytes,
                               limits::kSafetensorsMaxHeaderBytes),
                   ""});
  }
  auto header = parse_safetensors_header({reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes});
  if (!header) return refuse(std::move(header.error()));

  const auto data = bytes.subspan(8 + header_bytes);
  std::stable_sort(header->tensors.begin(), header->tensors.end(),
                   [](const auto& a, const auto& b) { return a.offsets < b.offsets; });
  SafetensorsFile file;
  file.file_bytes_ = bytes.size();
  file.header_ = bytes.first(8 + header_bytes);
  std::uint64_t end = 0;
  for (SafetensorsRecord& record : header->tensors) {
    const auto next = check_record(record, end, data.size());
    if (!next) return refuse(next.error());
    file.tensors_.push_back({std::move(record.name), find_element_type(record.dtype)->name,
                             std::vector<std::int64_t>(record.shape.begin(), record.shape.end()),
                             data.subspan(end, *next - end), 8 + header_bytes + end});
    end = *next;
  }
  if (end != data.size()) {
    return refuse(
        {ErrorCode::corrupt_file, fmt::format("{} bytes at its end belong to no tensor", data.size() - end), ""});
  }
  file.metadata_ = std::move(header->metadata);
  std::sort(file.metadata_.begin(), file.metadata_.end());
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), 0u);
  const auto name_of = [&](std::uint32_t i) -> std::string_view { return file.tensors_[i].name; };
  std::sort(file.by_name_.begin(), file.by_name_.end(), [&](auto a, auto b) { return name_of(a) < name_of(b); });
  const auto twin = std::adjacent_find(file.by_name_.begin(), file.by_name_.end(),
                                       [&](auto a, auto b) { return name_of(a) == name_of(b); });
  if (twin != file.by_name_.end()) {
    return refuse({ErrorCode::corrupt_file, fmt::format("tensor '{}' occurs twice", printable(name_of(*twin))), ""});
  }
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path, MapOptions options) {
  ADZE_TRY(MappedFile map, MappedFile::open(path, options));
  ADZE_TRY(SafetensorsFile file, parse(map.bytes(), path.filename().string()));
  file.map_ = std::move(map);
  return file;
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](std::uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

void SafetensorsWriter::add_array(std::string_view name, std::string_view dtype, std::span<const std::int64_t> shape,
                                  std::span<const std::byte> bytes) {
  std::uint64_t size = 4;
  for (const std::int64_t dim : shape) size *= static_cast<std::uint64_t>(dim);
  ADZE_CHECK(size == bytes.size(), "array '{}' has {} bytes, its shape needs {}", name, bytes.size(), size);
  arrays_.push_back({std::string(name),
                     dtype,
                     {shape.begin(), shape.end()},
                     std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
}

void SafetensorsWriter::add(std::string_view name, std::span<const std::int64_t> shape, std::span<const float> values) {
  add_array(name, "F32", shape, std::as_bytes(values));
}

void SafetensorsWriter::add(std::string_view name, std::span<const std::int64_t> shape,
                            std::span<const std::int32_t> values) {
  add_array(name, "I32", shape, std::as_bytes(values));
}

void SafetensorsWriter::add_metadata(std::string_view key, std::string_view value) {
  metadata_.emplace_back(key, value);
}

Status SafetensorsWriter::write(const std::filesystem::path& path) const {
  std::string header = "{";
  if (!metadata_.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata_)
      header += fmt::format("{}:{},", to_json_string(key), to_json_string(value));
    header.back() = '}';
    header += ',';
  }
  std::uint64_t offset = 0;
  for (const Array& array : arrays_) {
    header +=
        fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", to_json_string(array.name),
                    array.dtype, fmt::join(array.shape, ","), offset, offset + array.bytes.size());
    offset += array.bytes.size();
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');

  ADZE_TRY(AtomicFile file, AtomicFile::create(path));
  const std::uint64_t length = header.size();
  ADZE_TRY_STATUS(file.write(std::as_bytes(std::span(&length, 1))));
  ADZE_TRY_STATUS(file.write(header));
  for (const Array& array : arrays_) ADZE_TRY_STATUS(file.write(array.bytes));
  return file.commit();
}

}  // namespace adze::format
