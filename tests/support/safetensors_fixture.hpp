// Reads golden values from a .safetensors fixture. For tests only: it copies what it returns and throws
// std::runtime_error with one sentence on a missing file, a missing array or the wrong type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adze::test {

struct FixtureArray {
  std::string dtype;  // safetensors spelling: "F32", "BF16", "U8"
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  // into the data part
  std::size_t size = 0;    // bytes
};

class SafetensorsFixture {
 public:
  static SafetensorsFixture open(const std::filesystem::path& path);

  bool has(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted
  const FixtureArray& array(std::string_view name) const;
  std::span<const std::byte> bytes(std::string_view name) const;

  std::vector<float> floats(std::string_view name) const;           // F32, F16, BF16, all exact
  std::vector<std::int64_t> integers(std::string_view name) const;  // I64, I32, U8, BOOL

 private:
  std::filesystem::path path_;
  std::vector<std::byte> data_;
  std::map<std::string, FixtureArray, std::less<>> arrays_;
};

}  // namespace adze::test
