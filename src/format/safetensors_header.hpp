// The JSON header of a safetensors file as plain records. Inside the room only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace adze::format {

struct SafetensorsRecord {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::array<std::uint64_t, 2> offsets{};
};

struct SafetensorsHeader {
  std::vector<SafetensorsRecord> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// What is JSON and has the right fields of the right types; sizes and offsets are the caller's to check. The message
// says what is wrong, the caller adds the file. Errors: corrupt_file.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json);
std::string to_json_string(std::string_view text);  // quoted

}  // namespace adze::format
