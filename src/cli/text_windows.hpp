// A text cut into windows of tokens, as llama.cpp's tools cut it: each is evaluated from an empty context, and starts
// with BOS in place of its first token where the model has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adze/adze.hpp"

namespace adze::cli {

inline constexpr std::int64_t kDefaultWindow = 512;

struct TextWindows {
  std::vector<std::int32_t> ids;  // of the whole text
  std::int64_t size = 0;          // tokens
  std::int64_t count = 0;
  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> at(std::int64_t window) const;
};

// `size` tokens each, at most `most` windows (0: all). Errors: those of read_file; invalid_argument for a text that is
// not UTF-8, and for one that is too short: one window is enough only where no more was asked for.
Result<TextWindows> cut_text(const Engine& engine, const std::string& file, std::int64_t size, std::int64_t most);

}  // namespace adze::cli
