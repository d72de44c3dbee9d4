// Typed metadata of a model file: key -> scalar, string or array, all of them views into the file's map. Nothing is
// copied, so a vocabulary of 150,000 tokens costs no memory beyond the pages that are looked at. Immutable after
// parsing, safe to read from any thread; lives as long as the bytes behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace adze::format {

// GGUF's value types, with the ids of the file format.
enum class ValueType : std::uint8_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
std::string_view value_type_name(ValueType type);  // "u32", "string", ...
std::size_t value_type_bytes(ValueType type);      // of one scalar; 0 for string and array
bool is_integer(ValueType type);

struct MetadataValue {
  ValueType type = ValueType::u8;
  ValueType element = ValueType::u8;  // of an array; equal to type otherwise
  std::uint64_t count = 1;            // elements of an array; 1 otherwise
  std::span<const std::byte> bytes;   // a scalar's bytes, a string's characters, an array's elements as stored
};

// An array of strings, read in order: each is stored as a 64-bit length and its bytes, so there is no random access.
// A vector of views is `std::vector<std::string_view>(strings.begin(), strings.end())`.
class StringArray {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;
    Iterator() = default;
    explicit Iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const { return {reinterpret_cast<const char*>(at_) + 8, length()}; }
    Iterator& operator++() {
      at_ += 8 + length();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    std::size_t length() const {
      std::uint64_t n = 0;
      std::memcpy(&n, at_, sizeof n);
      return static_cast<std::size_t>(n);
    }
    const std::byte* at_ = nullptr;
  };

  StringArray() = default;
  // Every length inside `bytes` has been checked by the reader.
  StringArray(std::span<const std::byte> bytes, std::uint64_t count) : bytes_(bytes), count_(count) {}
  std::size_t size() const { return static_cast<std::size_t>(count_); }
  bool empty() const { return count_ == 0; }
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t count_ = 0;
};

// An array of numbers of any stored width, read as T: std::int64_t, float or bool. The map may hold it unaligned.
template <class T>
class NumberArray {
 public:
  NumberArray() = default;
  // Made by Metadata, which has checked that every element is representable as T.
  explicit NumberArray(const MetadataValue& value) : value_(value) {}
  std::size_t size() const { return static_cast<std::size_t>(value_.count); }
  bool empty() const { return size() == 0; }
  T operator[](std::size_t i) const;  // i < size()
  std::vector<T> to_vector() const;

 private:
  MetadataValue value_;
};

// The keys of one file. A getter fails with corrupt_file when the key is absent, when its value is of another kind
// or when it does not fit, and says the key, what was found and what was expected. Widths of integers are
// interchangeable where the value fits; a float key also takes a double or an integer. `_or` getters return the
// fallback only when the key is absent: a value of the wrong kind is still an error.
class Metadata {
 public:
  struct Entry {
    std::string_view key;
    MetadataValue value;
  };

  Metadata() = default;
  // Takes entries in file order; the caller has checked sizes. Errors: corrupt_file for an empty or duplicate key.
  static Result<Metadata> from_entries(std::vector<Entry> entries);

  std::span<const Entry> entries() const { return entries_; }  // in the order of the file
  const MetadataValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  Result<std::uint64_t> get_u64(std::string_view key) const;
  Result<std::int64_t> get_i64(std::string_view key) const;
  Result<float> get_f32(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;

  Result<std::uint64_t> get_u64_or(std::string_view key, std::uint64_t fallback) const;
  Result<std::int64_t> get_i64_or(std::string_view key, std::int64_t fallback) const;
  Result<float> get_f32_or(std::string_view key, float fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;

  Result<StringArray> get_strings(std::string_view key) const;
  Result<NumberArray<std::int64_t>> get_integers(std::string_view key) const;
  Result<NumberArray<float>> get_floats(std::string_view key) const;
  Result<NumberArray<bool>> get_bools(std::string_view key) const;

  // A number that a family may give once for all layers or once per layer: always `layers` values. An array of another
  // length is corrupt_file.
  Result<std::vector<std::int64_t>> get_i64_per_layer(std::string_view key, std::size_t layers) const;
  Result<std::vector<float>> get_f32_per_layer(std::string_view key, std::size_t layers) const;

 private:
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_key_;  // indexes into entries_, sorted by key
};

// "u32 7", "string of 5 bytes", "array of 4 u32": how messages name a value.
std::string describe_value(const MetadataValue& value);
// Text from a file made fit for a message: control bytes and broken UTF-8 escaped, long text shortened.
std::string printable(std::string_view text, std::size_t max_bytes = 96);

}  // namespace adze::format
