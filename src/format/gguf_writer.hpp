// Writes GGUF version 3: metadata, then tensors whose bytes exist already or are made while the file is written, so
// that converting a large model takes the memory of one piece of one tensor. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/metadata.hpp"
#include "tensor/view.hpp"

namespace adze::format {

// Takes the next bytes of a tensor, a few rows or all of it at a time; an error (disk full) must be handed on.
using TensorSink = std::function<Status(std::span<const std::byte>)>;
// Makes a tensor's bytes, in order, for every call anew.
using TensorProducer = std::function<Status(const TensorSink& sink)>;

class GgufWriter {
 public:
  // Another alignment than the format's 32 is written as `general.alignment`.
  explicit GgufWriter(std::uint32_t alignment = 32);

  void add_u8(std::string_view key, std::uint8_t value);
  void add_u16(std::string_view key, std::uint16_t value);
  void add_u32(std::string_view key, std::uint32_t value);
  void add_i32(std::string_view key, std::int32_t value);
  void add_u64(std::string_view key, std::uint64_t value);
  void add_i64(std::string_view key, std::int64_t value);
  void add_f32(std::string_view key, float value);
  void add_f64(std::string_view key, double value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_u32s(std::string_view key, std::span<const std::uint32_t> values);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  void add_u64s(std::string_view key, std::span<const std::uint64_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_bools(std::string_view key, const std::vector<bool>& values);
  void add_strings(std::string_view key, std::span<const std::string> values);
  // As it was read from another file.
  void add_value(std::string_view key, const MetadataValue& value);

  // `bytes` is not copied: it must live until the file is written. Its size must be that of the shape and type.
  void add_tensor(std::string_view name, tensor::DType type, const tensor::Shape& shape,
                  std::span<const std::byte> bytes);
  void add_tensor(const tensor::TensorView& view) { add_tensor(view.name, view.type, view.shape, view.bytes); }
  // `produce` is called when the file is written, tensor after tensor in the order in which they were added. It must
  // make as many bytes as shape and type need (ADZE_CHECK).
  void add_tensor(std::string_view name, tensor::DType type, const tensor::Shape& shape, TensorProducer produce);

  // Of the whole file.
  std::uint64_t file_bytes() const;
  // Errors: disk_full, also beforehand where the disk has too little room; io; those of the producers. The name holds
  // the old file or the whole new one.
  Status write(const std::filesystem::path& path) const;
  // The file as it would be written. No producer may fail (ADZE_CHECK).
  std::string to_bytes() const;

 private:
  struct Tensor {
    std::string name;
    tensor::DType type;
    tensor::Shape shape;
    std::uint64_t size;
    TensorProducer produce;
  };
  void add_key(std::string_view key, ValueType type);
  void add_array(std::string_view key, ValueType element, std::uint64_t count);
  std::string header() const;  // up to the first byte of tensor data
  Status emit(const TensorSink& sink) const;

  std::uint32_t alignment_;
  std::string entries_;
  std::uint64_t entry_count_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace adze::format
