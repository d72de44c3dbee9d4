#include "format/gguf_writer.hpp"

#include <utility>

#include "base/check.hpp"
#include "base/file.hpp"

namespace adze::format {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

void put_bytes(std::string& out, std::span<const std::byte> bytes) {
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::uint64_t padding(std::uint64_t size, std::uint32_t alignment) {
  return (alignment - size % alignment) % alignment;
}

}  // namespace

GgufWriter::GgufWriter(std::uint32_t alignment) : alignment_(alignment) {
  if (alignment != 32) add_u32("general.alignment", alignment);
}

void GgufWriter::add_key(std::string_view key, ValueType type) {
  put_text(entries_, key);
  put(entries_, static_cast<std::uint32_t>(type));
  ++entry_count_;
}

void GgufWriter::add_array(std::string_view key, ValueType element, std::uint64_t count) {
  add_key(key, ValueType::array);
  put(entries_, static_cast<std::uint32_t>(element));
  put(entries_, count);
}

void GgufWriter::add_u8(std::string_view key, std::uint8_t value) {
  add_key(key, ValueType::u8);
  put(entries_, value);
}
void GgufWriter::add_u16(std::string_view key, std::uint16_t value) {
  add_key(key, ValueType::u16);
  put(entries_, value);
}
void GgufWriter::add_u32(std::string_view key, std::uint32_t value) {
  add_key(key, ValueType::u32);
  put(entries_, value);
}
void GgufWriter::add_i32(std::string_view key, std::int32_t value) {
  add_key(key, ValueType::i32);
  put(entries_, value);
}
void GgufWriter::add_u64(std::string_view key, std::uint64_t value) {
  add_key(key, ValueType::u64);
  put(entries_, value);
}
void GgufWriter::add_i64(std::string_view key, std::int64_t value) {
  add_key(key, ValueType::i64);
  put(entries_, value);
}
void GgufWriter::add_f32(std::string_view key, float value) {
  add_key(key, ValueType::f32);
  put(entries_, value);
}
void GgufWriter::add_f64(std::string_view key, double value) {
  add_key(key, ValueType::f64);
  put(entries_, value);
}
void GgufWriter::add_bool(std::string_view key, bool value) {
  add_key(key, ValueType::boolean);
  put<std::uint8_t>(entries_, value ? 1 : 0);
}
void GgufWriter::add_string(std::string_view key, std::string_view value) {
  add_key(key, ValueType::string);
  put_text(entries_, value);
}
void GgufWriter::add_u32s(std::string_view key, std::span<const std::uint32_t> values) {
  add_array(key, ValueType::u32, values.size());
  put_bytes(entries_, std::as_bytes(values));
}
void GgufWriter::add_i32s(std::string_view key, std::span<const std::int32_t> values) {
  add_array(key, ValueType::i32, values.size());
  put_bytes(entries_, std::as_bytes(values));
}
void GgufWriter::add_u64s(std::string_view key, std::span<const std::uint64_t> values) {
  add_array(key, ValueType::u64, values.size());
  put_bytes(entries_, std::as_bytes(values));
}
void GgufWriter::add_f32s(std::string_view key, std::span<const float> values) {
  add_array(key, ValueType::f32, values.size());
  put_bytes(entries_, std::as_bytes(values));
}
void GgufWriter::add_bools(std::string_view key, const std::vector<bool>& values) {
  add_array(key, ValueType::boolean, values.size());
  for (const bool value : values) put<std::uint8_t>(entries_, value ? 1 : 0);
}
void GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  add_array(key, ValueType::string, values.size());
  for (const std::string& value : values) put_text(entries_, value);
}

void GgufWriter::add_value(std::string_view key, const MetadataValue& value) {
  if (value.type == ValueType::array) {
    add_array(key, value.element, value.count);
  } else {
    add_key(key, value.type);
    if (value.type == ValueType::string) put<std::uint64_t>(entries_, value.bytes.size());
  }
  put_bytes(entries_, value.bytes);
}

void GgufWriter::add_tensor(std::string_view name, tensor::DType type, const tensor::Shape& shape,
                            std::span<const std::byte> bytes) {
  const std::uint64_t expected = tensor::size_bytes(type, shape);
  ADZE_CHECK(bytes.size() == expected, "tensor '{}' has {} bytes, its shape needs {}", name, bytes.size(), expected);
  add_tensor(name, type, shape, [bytes](const TensorSink& sink) { return sink(bytes); });
}

void GgufWriter::add_tensor(std::string_view name, tensor::DType type, const tensor::Shape& shape,
                            TensorProducer produce) {
  ADZE_CHECK(tensor::dtype_info(type).ggml_id != tensor::kNoGgmlId, "tensor '{}': GGUF has no type {}", name,
             tensor::dtype_info(type).name);
  tensors_.push_back({std::string(name), type, shape, tensor::size_bytes(type, shape), std::move(produce)});
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put<std::uint32_t>(out, 3);
  put<std::uint64_t>(out, tensors_.size());
  put<std::uint64_t>(out, entry_count_);
  out += entries_;
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    put_text(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.rank));
    for (int i = tensor.shape.rank - 1; i >= 0; --i)
      put<std::uint64_t>(out, static_cast<std::uint64_t>(tensor.shape[i]));
    put(out, tensor::dtype_info(tensor.type).ggml_id);
    put(out, offset);
    offset += tensor.size + padding(tensor.size, alignment_);
  }
  out.append(padding(out.size(), alignment_), '\0');
  return out;
}

Status GgufWriter::emit(const TensorSink& sink) const {
  const auto emit_text = [&](std::string_view text) { return sink(std::as_bytes(std::span(text))); };
  ADZE_TRY_STATUS(emit_text(header()));
  const std::string zeros(alignment_, '\0');
  for (const Tensor& tensor : tensors_) {
    std::uint64_t made = 0;
    ADZE_TRY_STATUS(tensor.produce([&](std::span<const std::byte> bytes) {
      made += bytes.size();
      return sink(bytes);
    }));
    ADZE_CHECK(made == tensor.size, "tensor '{}' got {} bytes, its shape needs {}", tensor.name, made, tensor.size);
    ADZE_TRY_STATUS(emit_text(std::string_view(zeros).substr(0, padding(made, alignment_))));
  }
  return {};
}

std::uint64_t GgufWriter::file_bytes() const {
  std::uint64_t bytes = header().size();
  for (const Tensor& tensor : tensors_) bytes += tensor.size + padding(tensor.size, alignment_);
  return bytes;
}

Status GgufWriter::write(const std::filesystem::path& path) const {
  ADZE_TRY_STATUS(require_free_space(path, file_bytes()));
  ADZE_TRY(AtomicFile file, AtomicFile::create(path));
  ADZE_TRY_STATUS(emit([&](std::span<const std::byte> bytes) { return file.write(bytes); }));
  return file.commit();
}

std::string GgufWriter::to_bytes() const {
  std::string out;
  const Status made = emit([&](std::span<const std::byte> bytes) {
    put_bytes(out, bytes);
    return Status{};
  });
  ADZE_CHECK(made.has_value(), "{}", made.error().message);
  return out;
}

}  // namespace adze::format
