// Reads one GGUF header. The layout, all little-endian:
//
//   "GGUF"  u32 version  u64 tensor_count  u64 metadata_count
//   metadata_count × { string key, u32 type, value }        string = u64 length, bytes
//   tensor_count × { string name, u32 rank, u64 dims[rank] (innermost first), u32 type, u64 offset }
//   padding to `general.alignment` (32), then the data; offsets count from there
//
// The order of checks is the point of this file: nothing is multiplied, added or reserved before it has been compared
// with the bytes that are left, so no number in a file can overflow, over-allocate or make a loop run longer than the
// file.
#include "format/gguf_reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "base/limits.hpp"
#include "format/foreign.hpp"
#include "tensor/dtype.hpp"

namespace adze::format {
namespace {

constexpr std::uint32_t kDefaultAlignment = 32;
// Eight bytes is what the GGUF specification asks for and lets every element type be loaded in place.
constexpr std::uint32_t kMinAlignment = 8;
constexpr std::uint64_t kMinEntryBytes = 8;                   // the length of its key: the rest is told apart later
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;  // one-letter name, rank 0

constexpr std::string_view kDamaged = "the file is damaged or incomplete: download it again";

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }
  std::span<const std::byte> rest() const { return bytes_.subspan(position_); }

  template <class... Args>
  tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return refuse(ErrorCode::corrupt_file, kDamaged, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  tl::unexpected<Error> refuse(ErrorCode code, std::string_view hint, fmt::format_string<Args...> format,
                               Args&&... args) const {
    return fail(code, fmt::format("'{}': {}", name_, fmt::format(format, std::forward<Args>(args)...)),
                std::string(hint));
  }

  // `what` is what is being read, for the message: "the value of key 'a'".
  template <class T>
  Result<T> number(std::string_view what) {
    ADZE_TRY(const auto bytes, take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  Result<std::span<const std::byte>> take(std::uint64_t count, std::string_view what) {
    if (count > left()) {
      return corrupt("{} needs {} bytes at offset {}, but only {} are left", what, count, position_, left());
    }
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  Result<std::string_view> text(std::string_view what, std::uint64_t max_bytes) {
    ADZE_TRY(const std::uint64_t length, number<std::uint64_t>(what));
    if (length > max_bytes && length <= left()) {
      return refuse(ErrorCode::limit_exceeded, "", "{} has {} bytes, more than the limit of {}", what, length,
                    max_bytes);
    }
    ADZE_TRY(const auto bytes, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
  std::string_view name_;
};

Result<ValueType> read_value_type(Reader& reader, std::string_view what) {
  ADZE_TRY(const auto id, reader.number<std::uint32_t>(what));
  if (id > static_cast<std::uint32_t>(ValueType::f64))
    return reader.corrupt("{} has the unknown value type {}", what, id);
  return static_cast<ValueType>(id);
}

// The elements of an array, as they lie in the file.
Result<MetadataValue> read_array(Reader& reader, std::string_view what) {
  ADZE_TRY(const ValueType element, read_value_type(reader, what));
  ADZE_TRY(const auto count, reader.number<std::uint64_t>(what));
  if (element == ValueType::array) {
    return reader.refuse(ErrorCode::unsupported_feature, "no model needs it; the file may be hostile",
                         "{} is an array of arrays, which Adze does not read", what);
  }
  const std::uint64_t stride = element == ValueType::string ? 8 : value_type_bytes(element);  // at least
  if (count > reader.left() / stride) {
    const std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t need = count > max / stride ? max : count * stride;
    return reader.corrupt("{} claims {} elements of {}, which need at least {} bytes, but only {} are left", what,
                          count, value_type_name(element), need, reader.left());
  }
  MetadataValue value{ValueType::array, element, count, {}};
  if (element != ValueType::string) {
    ADZE_TRY(value.bytes, reader.take(count * stride, what));
    if (element == ValueType::boolean &&
        std::any_of(value.bytes.begin(), value.bytes.end(), [](std::byte b) { return b > std::byte{1}; })) {
      return reader.corrupt("{} holds a boolean that is neither 0 nor 1", what);
    }
    return value;
  }
  // Walked once, so that whoever reads the strings later need not check their lengths: 260,000 tokens in 1 ms.
  const std::span<const std::byte> rest = reader.rest();
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t length = 0;
    if (rest.size() - at < sizeof length) return reader.corrupt("{} ends at element {} of {}", what, i, count);
    std::memcpy(&length, rest.data() + at, sizeof length);
    at += sizeof length;
    if (length > rest.size() - at) {
      return reader.corrupt("element {} of {} needs {} bytes, but only {} are left", i, what, length, rest.size() - at);
    }
    at += length;
  }
  ADZE_TRY(value.bytes, reader.take(at, what));
  return value;
}

Result<MetadataValue> read_value(Reader& reader, std::string_view key) {
  const std::string what = fmt::format("metadata key '{}'", printable(key));
  ADZE_TRY(const ValueType type, read_value_type(reader, what));
  if (type == ValueType::array) return read_array(reader, what);
  MetadataValue value{type, type, 1, {}};
  if (type == ValueType::string) {
    ADZE_TRY(const auto text, reader.text(what, limits::kGgufMaxStringBytes));
    value.bytes = std::as_bytes(std::span(text.data(), text.size()));
    return value;
  }
  ADZE_TRY(value.bytes, reader.take(value_type_bytes(type), what));
  if (type == ValueType::boolean && value.bytes[0] > std::byte{1}) {
    return reader.corrupt("{} is a boolean that is neither 0 nor 1", what);
  }
  return value;
}

// Keys whose type the format itself lays down; the rest is the business of who asks for them.
struct KnownKey {
  std::string_view key;
  ValueType type;
  ValueType element;
};
constexpr KnownKey kKnownKeys[] = {
    {"general.architecture", ValueType::string, ValueType::string},
    {"general.alignment", ValueType::u32, ValueType::u32},
    {"tokenizer.ggml.model", ValueType::string, ValueType::string},
    {"tokenizer.ggml.tokens", ValueType::array, ValueType::string},
    {"tokenizer.ggml.merges", ValueType::array, ValueType::string},
};

Result<Metadata> read_metadata(Reader& reader, std::uint64_t count) {
  if (count > reader.left() / kMinEntryBytes) {
    return reader.corrupt("it claims {} metadata entries, but only {} bytes follow", count, reader.left());
  }
  if (count > limits::kGgufMaxMetadataEntries) {
    return reader.refuse(ErrorCode::limit_exceeded, "", "it has {} metadata entries, more than the limit of {}", count,
                         limits::kGgufMaxMetadataEntries);
  }
  std::vector<Metadata::Entry> entries;
  entries.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    ADZE_TRY(const auto key, reader.text(fmt::format("the key of metadata entry {}", i), limits::kGgufMaxKeyBytes));
    ADZE_TRY(const auto value, read_value(reader, key));
    entries.push_back({key, value});
  }
  auto metadata = Metadata::from_entries(std::move(entries));
  if (!metadata) return reader.corrupt("{}", metadata.error().message);
  for (const KnownKey& known : kKnownKeys) {
    const MetadataValue* value = metadata->find(known.key);
    if (value != nullptr && (value->type != known.type || value->element != known.element)) {
      return reader.corrupt("metadata key '{}' is {}, expected {}{}", known.key, describe_value(*value),
                            known.type == ValueType::array ? "an array of " : "", value_type_name(known.element));
    }
  }
  return metadata;
}

Result<std::uint32_t> read_alignment(const Reader& reader, const Metadata& metadata) {
  if (!metadata.has("general.alignment")) return kDefaultAlignment;
  ADZE_TRY(const auto value, metadata.get_u64("general.alignment"));
  if (!std::has_single_bit(value) || value < kMinAlignment) {
    return reader.corrupt("metadata key 'general.alignment' is {}, expected a power of two of at least {}", value,
                          kMinAlignment);
  }
  return static_cast<std::uint32_t>(value);
}

// One tensor's record. `bytes` of the view has its size but no place yet: that is known once all records are read.
struct TensorRecord {
  std::string_view name;
  tensor::DType type = tensor::DType::f32;
  tensor::Shape shape;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

Result<tensor::Shape> read_shape(Reader& reader, std::string_view what) {
  ADZE_TRY(const auto rank, reader.number<std::uint32_t>(what));
  if (rank > static_cast<std::uint32_t>(limits::kGgufMaxDims)) {
    return reader.corrupt("{} has {} dimensions, more than {}", what, rank, limits::kGgufMaxDims);
  }
  tensor::Shape shape;
  shape.rank = static_cast<int>(rank);
  std::uint64_t elements = 1;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (std::uint32_t i = 0; i < rank; ++i) {
    ADZE_TRY(const auto dim, reader.number<std::uint64_t>(what));
    if (dim == 0 || dim > kMax) {
      return reader.corrupt("dimension {} of {} is {}, expected a positive number", i, what,
                            static_cast<std::int64_t>(dim));
    }
    if (dim > kMax / elements) return reader.corrupt("the element count of {} overflows 63 bits", what);
    elements *= dim;
    shape.dims[rank - 1 - i] = static_cast<std::int64_t>(dim);
  }
  return shape;
}

Result<tensor::DType> read_dtype(Reader& reader, std::string_view what) {
  ADZE_TRY(const auto id, reader.number<std::uint32_t>(what));
  if (const auto type = tensor::dtype_from_ggml(id)) return *type;
  const std::string_view name = tensor::ggml_type_name(id);
  if (name.empty()) {
    return reader.refuse(ErrorCode::unsupported_type, kDamaged, "{} has the type id {}, which no version of GGUF has",
                         what, id);
  }
  return reader.refuse(ErrorCode::unsupported_type, "use a file with another quantisation, for example Q4_K_M or Q8_0",
                       "{} is of type {}, which Adze does not have", what, name);
}

Result<TensorRecord> read_tensor_record(Reader& reader, std::uint64_t index, std::uint32_t alignment) {
  TensorRecord record;
  ADZE_TRY(record.name, reader.text(fmt::format("the name of tensor {}", index), limits::kGgufMaxKeyBytes));
  if (record.name.empty()) return reader.corrupt("tensor {} has an empty name", index);
  const std::string what = fmt::format("tensor '{}'", printable(record.name));
  ADZE_TRY(record.shape, read_shape(reader, what));
  ADZE_TRY(record.type, read_dtype(reader, what));
  ADZE_TRY(record.offset, reader.number<std::uint64_t>(what));

  const tensor::DTypeInfo& info = tensor::dtype_info(record.type);
  const auto columns =
      static_cast<std::uint64_t>(record.shape.rank == 0 ? 1 : record.shape.dims[record.shape.rank - 1]);
  if (columns % info.block_elements != 0) {
    return reader.corrupt("a row of {} has {} elements, not a multiple of the {} in a block of {}", what, columns,
                          info.block_elements, info.name);
  }
  const std::uint64_t blocks = static_cast<std::uint64_t>(record.shape.elements()) / info.block_elements;
  if (blocks > std::numeric_limits<std::int64_t>::max() / info.block_bytes) {
    return reader.corrupt("the byte count of {} overflows 63 bits", what);
  }
  record.size = blocks * info.block_bytes;
  if (record.offset % alignment != 0) {
    return reader.corrupt("{} starts at offset {}, not a multiple of the alignment {}", what, record.offset, alignment);
  }
  return record;
}

// Sorted by offset, each tensor must end before the next begins.
Status check_overlap(const Reader& reader, const std::vector<TensorRecord>& records) {
  std::vector<std::uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return records[a].offset < records[b].offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorRecord& before = records[order[i - 1]];
    const TensorRecord& after = records[order[i]];
    if (before.size > after.offset - before.offset) {
      return reader.corrupt("tensors '{}' and '{}' overlap: {} bytes at {} run past {}", printable(before.name),
                            printable(after.name), before.size, before.offset, after.offset);
    }
  }
  return {};
}

Status check_inside(const Reader& reader, const TensorRecord& record, std::uint64_t data_offset,
                    std::uint64_t file_size) {
  const std::uint64_t available = file_size > data_offset ? file_size - data_offset : 0;
  if (record.size <= available && record.offset <= available - record.size) return {};
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t room = kMax - data_offset - record.size;  // size < 2^63, data_offset < 2^62
  const std::uint64_t end = record.offset > room ? kMax : data_offset + record.offset + record.size;
  return reader.corrupt("tensor '{}' ({} bytes) ends past the end of the file: {} bytes are missing",
                        printable(record.name), record.size, end - file_size);
}

Result<std::vector<TensorRecord>> read_tensor_records(Reader& reader, std::uint64_t count, std::uint32_t alignment) {
  if (count > reader.left() / kMinTensorBytes) {
    return reader.corrupt("it claims {} tensors, but only {} bytes follow", count, reader.left());
  }
  if (count > limits::kGgufMaxTensors) {
    return reader.refuse(ErrorCode::limit_exceeded, "", "it has {} tensors, more than the limit of {}", count,
                         limits::kGgufMaxTensors);
  }
  std::vector<TensorRecord> records;
  records.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    ADZE_TRY(records.emplace_back(), read_tensor_record(reader, i, alignment));
  }
  return records;
}

Result<std::uint32_t> read_version(Reader& reader, std::span<const std::byte> bytes) {
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0) {
    const ForeignFile foreign = recognise_foreign(bytes);
    return reader.refuse(ErrorCode::not_a_model, foreign.hint, "not a GGUF model: it is {}", foreign.what);
  }
  ADZE_TRY_STATUS(reader.take(4, "the magic").map([](auto) {}));
  ADZE_TRY(const auto version, reader.number<std::uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if ((version & 0xffffu) == 0 && version != 0) {
    return reader.refuse(ErrorCode::unsupported_feature, "convert the model again on a little-endian machine",
                         "it is a big-endian GGUF file, which Adze does not read");
  }
  return reader.refuse(ErrorCode::unsupported_feature, "convert the model again with a current converter",
                       "it is GGUF version {}, Adze reads versions 2 and 3", version);
}

}  // namespace

Result<GgufHeader> read_gguf_header(std::span<const std::byte> bytes, std::string_view name) {
  Reader reader(bytes, name);
  GgufHeader header;
  ADZE_TRY(header.version, read_version(reader, bytes));
  ADZE_TRY(const auto tensor_count, reader.number<std::uint64_t>("the tensor count"));
  ADZE_TRY(const auto metadata_count, reader.number<std::uint64_t>("the metadata count"));
  if (tensor_count > reader.left() / kMinTensorBytes) {  // before any work on the metadata
    return reader.corrupt("it claims {} tensors, but only {} bytes follow", tensor_count, reader.left());
  }
  ADZE_TRY(header.metadata, read_metadata(reader, metadata_count));
  ADZE_TRY(header.alignment, read_alignment(reader, header.metadata));
  ADZE_TRY(const auto records, read_tensor_records(reader, tensor_count, header.alignment));

  // At most the file's size plus 2^31: no overflow. A file that ends in the padding is truncated like any other.
  const std::uint64_t padding = (header.alignment - reader.position() % header.alignment) % header.alignment;
  header.data_offset = reader.position() + padding;
  ADZE_TRY_STATUS(check_overlap(reader, records));
  header.tensors.reserve(records.size());
  for (const TensorRecord& record : records) {
    ADZE_TRY_STATUS(check_inside(reader, record, header.data_offset, bytes.size()));
    const std::uint64_t at = header.data_offset + record.offset;
    header.tensors.push_back({{record.name, record.type, record.shape, bytes.subspan(at, record.size)}, 0, at});
  }
  return header;
}

}  // namespace adze::format
