// A saved chat: one JSON object {"system": TEXT, "messages": [{"role", "content"}]}.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "base/result.hpp"

namespace adze::cli {

struct SavedChat {
  std::string system;
  std::vector<ChatMessage> messages;
};

// Errors: io, disk_full; the name holds the old file or the whole new one.
Status save_chat(const std::filesystem::path& path, const SavedChat& chat);
// Errors: not_found, io, corrupt_file where it is not such an object.
Result<SavedChat> load_chat(const std::filesystem::path& path);

}  // namespace adze::cli
