#include "support/safetensors_fixture.hpp"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/half.hpp"

namespace adze::test {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view what) {
  throw std::runtime_error("fixture " + path.string() + ": " + std::string(what));
}

template <class Stored, class Out, class Convert>
std::vector<Out> convert(std::span<const std::byte> bytes, Convert convert_one) {
  std::vector<Out> out(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = convert_one(stored);
  }
  return out;
}

}  // namespace

SafetensorsFixture SafetensorsFixture::open(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "cannot be opened");
  const std::size_t file_size = std::filesystem::file_size(path);
  std::uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), sizeof header_size);
  if (!file || header_size > file_size - sizeof header_size) refuse(path, "is not a safetensors file");
  std::string header(header_size, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));

  SafetensorsFixture fixture;
  fixture.path_ = path;
  fixture.data_.resize(file_size - sizeof header_size - header_size);
  file.read(reinterpret_cast<char*>(fixture.data_.data()), static_cast<std::streamsize>(fixture.data_.size()));
  if (!file) refuse(path, "cannot be read to its end");

  const auto json = nlohmann::json::parse(header, nullptr, false);
  if (!json.is_object()) refuse(path, "has a header that is not a JSON object");
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry.at("data_offsets").at(0).get<std::size_t>();
    const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
    if (begin > end || end > fixture.data_.size()) refuse(path, "array " + name + " lies outside the file");
    fixture.arrays_[name] = FixtureArray{entry.at("dtype").get<std::string>(),
                                         entry.at("shape").get<std::vector<std::int64_t>>(), begin, end - begin};
  }
  return fixture;
}

bool SafetensorsFixture::has(std::string_view name) const { return arrays_.find(name) != arrays_.end(); }

std::vector<std::string> SafetensorsFixture::names() const {
  std::vector<std::string> names;
  names.reserve(arrays_.size());
  for (const auto& [name, array] : arrays_) names.push_back(name);
  return names;
}

const FixtureArray& SafetensorsFixture::array(std::string_view name) const {
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) refuse(path_, "has no array " + std::string(name));
  return found->second;
}

std::span<const std::byte> SafetensorsFixture::bytes(std::string_view name) const {
  const FixtureArray& found = array(name);
  return {data_.data() + found.offset, found.size};
}

std::vector<float> SafetensorsFixture::floats(std::string_view name) const {
  const FixtureArray& found = array(name);
  const auto raw = bytes(name);
  if (found.dtype == "F32") return convert<float, float>(raw, [](float v) { return v; });
  if (found.dtype == "F16") return convert<std::uint16_t, float>(raw, f16_to_f32);
  if (found.dtype == "BF16") return convert<std::uint16_t, float>(raw, bf16_to_f32);
  refuse(path_, "array " + std::string(name) + " is " + found.dtype + ", not a float type");
}

std::vector<std::int64_t> SafetensorsFixture::integers(std::string_view name) const {
  const FixtureArray& found = array(name);
  const auto raw = bytes(name);
  const auto widen = [](auto v) { return static_cast<std::int64_t>(v); };
  if (found.dtype == "I64") return convert<std::int64_t, std::int64_t>(raw, widen);
  if (found.dtype == "I32") return convert<std::int32_t, std::int64_t>(raw, widen);
  if (found.dtype == "U8" || found.dtype == "BOOL") return convert<std::uint8_t, std::int64_t>(raw, widen);
  refuse(path_, "array " + std::string(name) + " is " + found.dtype + ", not an integer type");
}

}  // namespace adze::test
