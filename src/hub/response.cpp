#include "hub/response.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "hub/sha256.hpp"

namespace adze::hub {
namespace {

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return out;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

void Response::add_line(std::string_view line) {
  line = trim(line);
  if (line.starts_with("HTTP/")) {
    Response next;
    next.linked_sha256 = std::move(linked_sha256);
    next.linked_bytes = linked_bytes;
    next.major_version = line.size() > 5 && line[5] >= '2' ? 2 : 1;
    const std::size_t space = line.find(' ');
    if (space != line.npos) next.status = static_cast<long>(parse_number(line.substr(space + 1, 3)).value_or(0));
    *this = std::move(next);
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "content-length") {
    content_length = parse_number(value);
  } else if (name == "transfer-encoding") {
    chunked = lower(value).find("chunked") != std::string::npos;
  } else if (name == "etag") {
    etag = value;
  } else if (name == "last-modified") {
    last_modified = value;
  } else if (name == "content-range") {  // bytes 100-199/200
    const std::size_t space = value.find(' '), dash = value.find('-'), slash = value.find('/');
    if (space == value.npos || dash == value.npos || slash == value.npos || dash < space || slash < dash) return;
    range_first = parse_number(value.substr(space + 1, dash - space - 1)).value_or(UINT64_MAX);
    range_total = parse_number(value.substr(slash + 1));
  } else if (name == "x-linked-size") {
    linked_bytes = parse_number(value);
  } else if (name == "x-linked-etag") {
    std::string_view digest = value;
    if (digest.starts_with("W/")) digest.remove_prefix(2);
    if (digest.size() > 2 && digest.front() == '"') digest = digest.substr(1, digest.size() - 2);
    linked_sha256 = parse_sha256(digest).value_or("");
  }
}

}  // namespace adze::hub
