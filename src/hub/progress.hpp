// How long work of this room reports itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace adze::hub {

enum class Stage : std::uint8_t {
  fetching,   // bytes are arriving
  unpacking,  // bytes are being taken out of an archive
  verifying,  // bytes that are there are being hashed
  waiting,    // for the next try, after one that failed
};

struct Progress {
  Stage stage = Stage::fetching;
  std::string_view file;    // the name of what is being made
  std::uint64_t done = 0;   // bytes
  std::uint64_t total = 0;  // bytes; 0 while unknown
};

// Called often, on the thread that asked for the work; false stops it with ErrorCode::cancelled, resumable where a
// download was under way. May be empty.
using ProgressCallback = std::function<bool(const Progress&)>;

}  // namespace adze::hub
