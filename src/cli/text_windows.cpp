#include "cli/text_windows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "cli/utf8.hpp"

namespace adze::cli {

std::vector<std::int32_t> TextWindows::at(std::int64_t window) const {
  const auto start = ids.begin() + window * size;
  std::vector<std::int32_t> cut(start, start + size);
  if (bos) cut.front() = *bos;
  return cut;
}

Result<TextWindows> cut_text(const Engine& engine, const std::string& file, std::int64_t size, std::int64_t most) {
  ADZE_TRY(const std::string text, read_file(file, limits::kMaxCorpusBytes));
  if (const auto bad = first_bad_utf8(text)) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not UTF-8 at byte {}", file, *bad),
                "Convert it first, for example with iconv -t UTF-8.");
  }
  TextWindows windows;
  windows.size = size;
  const bool bos = engine.adds_bos();
  ADZE_TRY(windows.ids, engine.tokenize(text, bos, false));
  if (bos && !windows.ids.empty()) windows.bos = windows.ids.front();
  const auto tokens = static_cast<std::int64_t>(windows.ids.size());
  if (most == 0) most = std::max<std::int64_t>(tokens, 1);
  const std::int64_t needed = std::min<std::int64_t>(most, 2);  // one alone says too little, unless it was asked for
  if (tokens < needed * size) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' has {} tokens, fewer than {} of {}", file, tokens,
                            needed == 1 ? "one window" : "two windows", size),
                "Take a longer text or smaller windows.");
  }
  windows.count = std::min(most, tokens / size);
  return windows;
}

}  // namespace adze::cli
