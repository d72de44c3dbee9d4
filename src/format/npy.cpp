#include "format/npy.hpp"

#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "base/check.hpp"

namespace adze::format {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of the first value, as NumPy writes it

std::uint64_t element_count(std::span<const std::int64_t> shape) {
  std::uint64_t elements = 1;
  for (const std::int64_t dim : shape) elements *= static_cast<std::uint64_t>(dim);
  return elements;
}

std::string npy_header(std::span<const std::int64_t> shape) {
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (const std::int64_t dim : shape) dict += fmt::format("{}, ", dim);
  if (shape.size() > 1) dict.resize(dict.size() - 2);
  if (shape.size() == 1) dict.resize(dict.size() - 1);  // "(5,)"
  dict += "), }";
  const std::size_t prefix = kMagic.size() + 4;
  dict.append(kAlignment - 1 - (prefix + dict.size()) % kAlignment, ' ');
  dict += '\n';
  std::string out(kMagic);
  out += '\1';
  out += '\0';
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict;
}

// The text after `'key':` in the header's Python dictionary.
std::string_view dict_value(std::string_view dict, std::string_view key) {
  const std::size_t at = dict.find(key);
  if (at == dict.npos) return {};
  const std::string_view rest = dict.substr(at + key.size());
  const std::size_t first = rest.find_first_not_of(": ");
  return first == rest.npos ? std::string_view() : rest.substr(first);
}

// "(3, 4)" or "(3,)" or "()"; elements are bounded by the caller's file size.
bool parse_shape(std::string_view text, std::vector<std::int64_t>& shape) {
  if (!text.starts_with('(')) return false;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  while (at < end && *at != ')') {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc{} || dim < 0) return false;
    shape.push_back(dim);
    at = next;
  }
  return at < end;
}

}  // namespace

Result<NpyWriter> NpyWriter::create(const std::filesystem::path& path, std::span<const std::int64_t> shape) {
  ADZE_TRY(AtomicFile file, AtomicFile::create(path));
  ADZE_TRY_STATUS(file.write(npy_header(shape)));
  return NpyWriter(std::move(file), element_count(shape));
}

Status NpyWriter::append(std::span<const float> values) {
  ADZE_CHECK(values.size() <= left_, "{} values, room for {}", values.size(), left_);
  left_ -= values.size();
  return file_.write(std::as_bytes(values));
}

Status NpyWriter::commit() {
  ADZE_CHECK(left_ == 0, "{} values are missing", left_);
  return file_.commit();
}

Status write_npy(const std::filesystem::path& path, std::span<const std::int64_t> shape,
                 std::span<const float> values) {
  ADZE_TRY(NpyWriter writer, NpyWriter::create(path, shape));
  ADZE_TRY_STATUS(writer.append(values));
  return writer.commit();
}

Result<NpyArray> open_npy(const std::filesystem::path& path) {
  NpyArray array;
  ADZE_TRY(array.map, MappedFile::open(path));
  const auto bytes = array.map.bytes();
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto corrupt = [&](std::string_view what) {
    return fail(ErrorCode::corrupt_file, fmt::format("'{}' {}", path.string(), what), "give a float32 .npy file");
  };
  if (!all.starts_with(kMagic) || all.size() < 12) return corrupt("is not a .npy file");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(all[i])); };
  const bool v1 = byte(6) == 1;
  const std::size_t start = v1 ? 10 : 12;
  const std::size_t length = byte(8) | byte(9) << 8 | (v1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (length > all.size() - start) return corrupt("is truncated inside its header");
  const std::string_view dict = all.substr(start, length);
  if (!dict_value(dict, "'descr'").starts_with("'<f4'") || !dict_value(dict, "'fortran_order'").starts_with("False")) {
    return fail(ErrorCode::unsupported_type, fmt::format("'{}' does not hold float32 in C order", path.string()),
                "save it with array.astype('float32')");
  }
  if (!parse_shape(dict_value(dict, "'shape'"), array.shape)) return corrupt("has a shape that cannot be read");
  const std::size_t available = (all.size() - start - length) / sizeof(float);
  std::uint64_t elements = 1;
  for (const std::int64_t dim : array.shape) {
    if (dim != 0 && elements > available / static_cast<std::uint64_t>(dim)) {
      return corrupt("is shorter than its shape says");
    }
    elements *= static_cast<std::uint64_t>(dim);
  }
  if (elements > available) return corrupt("is shorter than its shape says");
  if ((start + length) % alignof(float) != 0) return corrupt("holds values that are not aligned");
  array.values = {reinterpret_cast<const float*>(bytes.data() + start + length), static_cast<std::size_t>(elements)};
  return array;
}

}  // namespace adze::format
