#include "format/metadata.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

namespace adze::format {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie in the file");

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Sign and magnitude, so that every stored integer fits: i64's and u64's ranges overlap only in part.
struct Integer {
  bool negative = false;
  std::uint64_t bits = 0;  // two's complement when negative
};

Integer integer_of(std::int64_t value) { return {value < 0, static_cast<std::uint64_t>(value)}; }

std::optional<Integer> load_integer(ValueType type, const std::byte* at) {
  switch (type) {
    case ValueType::u8: return Integer{false, load<std::uint8_t>(at)};
    case ValueType::u16: return Integer{false, load<std::uint16_t>(at)};
    case ValueType::u32: return Integer{false, load<std::uint32_t>(at)};
    case ValueType::u64: return Integer{false, load<std::uint64_t>(at)};
    case ValueType::i8: return integer_of(load<std::int8_t>(at));
    case ValueType::i16: return integer_of(load<std::int16_t>(at));
    case ValueType::i32: return integer_of(load<std::int32_t>(at));
    case ValueType::i64: return integer_of(load<std::int64_t>(at));
    case ValueType::f32:
    case ValueType::f64:
    case ValueType::boolean:
    case ValueType::string:
    case ValueType::array: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::int64_t> load_i64(ValueType type, const std::byte* at) {
  const auto integer = load_integer(type, at);
  if (!integer || (!integer->negative && integer->bits > std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::int64_t>(integer->bits);
}

std::optional<std::uint64_t> load_u64(ValueType type, const std::byte* at) {
  const auto integer = load_integer(type, at);
  if (!integer || integer->negative) return std::nullopt;
  return integer->bits;
}

// A double rounds to the nearest float; one that overflows to infinity, or an integer that a float cannot hold, does
// not fit.
std::optional<float> load_f32(ValueType type, const std::byte* at) {
  if (type == ValueType::f32) return load<float>(at);
  if (type == ValueType::f64) {
    const double value = load<double>(at);
    if (std::isfinite(value) && std::abs(value) > static_cast<double>(std::numeric_limits<float>::max()))
      return std::nullopt;
    return static_cast<float>(value);
  }
  const auto integer = load_integer(type, at);
  constexpr std::int64_t kExact = std::int64_t{1} << 24;  // every integer up to here is a float
  if (!integer) return std::nullopt;
  const auto value = static_cast<std::int64_t>(integer->bits);
  if ((!integer->negative && integer->bits > kExact) || value < -kExact) return std::nullopt;
  return static_cast<float>(value);
}

template <class T>
std::optional<T> load_as(ValueType type, const std::byte* at) {
  if constexpr (std::is_same_v<T, float>) {
    return load_f32(type, at);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (type != ValueType::boolean) return std::nullopt;
    return load<std::uint8_t>(at) != 0;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return load_u64(type, at);
  } else {
    return load_i64(type, at);
  }
}

tl::unexpected<Error> missing(std::string_view key, std::string_view expected) {
  return fail(ErrorCode::corrupt_file, fmt::format("metadata key '{}' ({}) is missing", printable(key), expected),
              "the file was converted without it: convert the model again with a current converter");
}

tl::unexpected<Error> mismatch(std::string_view key, const MetadataValue& found, std::string_view expected) {
  return fail(ErrorCode::corrupt_file,
              fmt::format("metadata key '{}' is {}, expected {}", printable(key), describe_value(found), expected),
              "the file is damaged or was converted wrongly: download or convert it again");
}

template <class T>
Result<T> get_scalar(const Metadata& metadata, std::string_view key, std::string_view expected) {
  const MetadataValue* value = metadata.find(key);
  if (value == nullptr) return missing(key, expected);
  if (value->type == ValueType::array || value->type == ValueType::string) return mismatch(key, *value, expected);
  if (const auto loaded = load_as<T>(value->type, value->bytes.data())) return *loaded;
  return mismatch(key, *value, expected);
}

// Checks every element where the stored type does not by itself guarantee that it is representable as T.
template <class T>
Result<NumberArray<T>> get_array(const Metadata& metadata, std::string_view key, std::string_view expected) {
  const MetadataValue* value = metadata.find(key);
  if (value == nullptr) return missing(key, expected);
  if (value->type != ValueType::array || value->element == ValueType::string) return mismatch(key, *value, expected);
  const std::size_t stride = value_type_bytes(value->element);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    if (!load_as<T>(value->element, value->bytes.data() + i * stride)) {
      return fail(ErrorCode::corrupt_file, fmt::format("metadata key '{}' is {}, expected {}: element {} does not fit",
                                                       printable(key), describe_value(*value), expected, i));
    }
  }
  return NumberArray<T>(*value);
}

template <class T>
Result<std::vector<T>> get_per_layer(const Metadata& metadata, std::string_view key, std::size_t layers,
                                     std::string_view expected) {
  const MetadataValue* value = metadata.find(key);
  if (value == nullptr) return missing(key, expected);
  if (value->type != ValueType::array) {
    ADZE_TRY(const T scalar, get_scalar<T>(metadata, key, expected));
    return std::vector<T>(layers, scalar);
  }
  ADZE_TRY(const NumberArray<T> array, get_array<T>(metadata, key, expected));
  if (array.size() != layers) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("metadata key '{}' has {} values for {} layers", printable(key), array.size(), layers));
  }
  return array.to_vector();
}

constexpr std::string_view kUnsigned = "an unsigned integer", kSigned = "an integer", kFloat = "a number",
                           kBool = "a boolean", kString = "a string";

}  // namespace

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::u8: return "u8";
    case ValueType::i8: return "i8";
    case ValueType::u16: return "u16";
    case ValueType::i16: return "i16";
    case ValueType::u32: return "u32";
    case ValueType::i32: return "i32";
    case ValueType::f32: return "f32";
    case ValueType::boolean: return "bool";
    case ValueType::string: return "string";
    case ValueType::array: return "array";
    case ValueType::u64: return "u64";
    case ValueType::i64: return "i64";
    case ValueType::f64: return "f64";
  }
  return "?";
}

std::size_t value_type_bytes(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean: return 1;
    case ValueType::u16:
    case ValueType::i16: return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32: return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64: return 8;
    case ValueType::string:
    case ValueType::array: return 0;
  }
  return 0;
}

bool is_integer(ValueType type) {
  return type != ValueType::f32 && type != ValueType::f64 && type != ValueType::boolean && type != ValueType::string &&
         type != ValueType::array;
}

template <class T>
T NumberArray<T>::operator[](std::size_t i) const {
  return *load_as<T>(value_.element, value_.bytes.data() + i * value_type_bytes(value_.element));
}

template <class T>
std::vector<T> NumberArray<T>::to_vector() const {
  std::vector<T> values(size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = (*this)[i];
  return values;
}

template class NumberArray<std::int64_t>;
template class NumberArray<float>;
template class NumberArray<bool>;

Result<Metadata> Metadata::from_entries(std::vector<Entry> entries) {
  Metadata metadata;
  metadata.entries_ = std::move(entries);
  metadata.by_key_.resize(metadata.entries_.size());
  std::iota(metadata.by_key_.begin(), metadata.by_key_.end(), 0u);
  const auto key_of = [&](std::uint32_t i) { return metadata.entries_[i].key; };
  std::sort(metadata.by_key_.begin(), metadata.by_key_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key_of(a) < key_of(b); });
  if (!metadata.by_key_.empty() && key_of(metadata.by_key_.front()).empty()) {
    return fail(ErrorCode::corrupt_file, fmt::format("metadata entry {} has an empty key", metadata.by_key_.front()));
  }
  const auto twin = std::adjacent_find(metadata.by_key_.begin(), metadata.by_key_.end(),
                                       [&](std::uint32_t a, std::uint32_t b) { return key_of(a) == key_of(b); });
  if (twin != metadata.by_key_.end()) {
    return fail(ErrorCode::corrupt_file, fmt::format("metadata key '{}' occurs twice", printable(key_of(*twin))));
  }
  return metadata;
}

const MetadataValue* Metadata::find(std::string_view key) const {
  const auto at = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                   [&](std::uint32_t i, std::string_view wanted) { return entries_[i].key < wanted; });
  return at != by_key_.end() && entries_[*at].key == key ? &entries_[*at].value : nullptr;
}

Result<std::uint64_t> Metadata::get_u64(std::string_view key) const {
  return get_scalar<std::uint64_t>(*this, key, kUnsigned);
}
Result<std::int64_t> Metadata::get_i64(std::string_view key) const {
  return get_scalar<std::int64_t>(*this, key, kSigned);
}
Result<float> Metadata::get_f32(std::string_view key) const { return get_scalar<float>(*this, key, kFloat); }
Result<bool> Metadata::get_bool(std::string_view key) const { return get_scalar<bool>(*this, key, kBool); }

Result<std::string_view> Metadata::get_string(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return missing(key, kString);
  if (value->type != ValueType::string) return mismatch(key, *value, kString);
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Result<std::uint64_t> Metadata::get_u64_or(std::string_view key, std::uint64_t fallback) const {
  if (!has(key)) return fallback;
  return get_u64(key);
}
Result<std::int64_t> Metadata::get_i64_or(std::string_view key, std::int64_t fallback) const {
  if (!has(key)) return fallback;
  return get_i64(key);
}
Result<float> Metadata::get_f32_or(std::string_view key, float fallback) const {
  if (!has(key)) return fallback;
  return get_f32(key);
}
Result<bool> Metadata::get_bool_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  return get_bool(key);
}
Result<std::string_view> Metadata::get_string_or(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return fallback;
  return get_string(key);
}

Result<StringArray> Metadata::get_strings(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of strings";
  const MetadataValue* value = find(key);
  if (value == nullptr) return missing(key, kExpected);
  if (value->type != ValueType::array || value->element != ValueType::string) return mismatch(key, *value, kExpected);
  return StringArray(value->bytes, value->count);
}

Result<NumberArray<std::int64_t>> Metadata::get_integers(std::string_view key) const {
  return get_array<std::int64_t>(*this, key, "an array of integers");
}
Result<NumberArray<float>> Metadata::get_floats(std::string_view key) const {
  return get_array<float>(*this, key, "an array of numbers");
}
Result<NumberArray<bool>> Metadata::get_bools(std::string_view key) const {
  return get_array<bool>(*this, key, "an array of booleans");
}

Result<std::vector<std::int64_t>> Metadata::get_i64_per_layer(std::string_view key, std::size_t layers) const {
  return get_per_layer<std::int64_t>(*this, key, layers, "an integer or one integer per layer");
}
Result<std::vector<float>> Metadata::get_f32_per_layer(std::string_view key, std::size_t layers) const {
  return get_per_layer<float>(*this, key, layers, "a number or one number per layer");
}

std::string describe_value(const MetadataValue& value) {
  const std::string_view name = value_type_name(value.type);
  const std::byte* at = value.bytes.data();
  if (value.type == ValueType::string) return fmt::format("a string of {} bytes", value.bytes.size());
  if (value.type == ValueType::array)
    return fmt::format("an array of {} {}", value.count, value_type_name(value.element));
  if (value.type == ValueType::boolean) return load<std::uint8_t>(at) != 0 ? "bool true" : "bool false";
  if (value.type == ValueType::f32) return fmt::format("f32 {}", load<float>(at));
  if (value.type == ValueType::f64) return fmt::format("f64 {}", load<double>(at));
  const auto integer = load_integer(value.type, at);
  if (integer->negative) return fmt::format("{} {}", name, static_cast<std::int64_t>(integer->bits));
  return fmt::format("{} {}", name, integer->bits);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (i >= max_bytes) return out + fmt::format("… ({} bytes)", text.size());
    const auto byte = static_cast<unsigned char>(text[i]);
    // The length of a well-formed UTF-8 sequence at i: 0 for anything to be escaped.
    std::size_t length = byte >= 0x20 && byte < 0x7f ? 1 : 0;
    if (byte >= 0xc2 && byte < 0xf5) length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    if (i + length > text.size()) length = 0;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) length = 0;
    }
    if (byte == '\n') {
      out += "\\n";
      ++i;
    } else if (length == 0) {
      out += fmt::format("\\x{:02x}", byte);
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace adze::format
