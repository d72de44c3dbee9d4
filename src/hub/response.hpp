// The headers of an HTTP exchange that matter to a download: those of the last response, and what a hub said before it
// redirected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adze::hub {

struct Response {
  long status = 0;
  int major_version = 1;
  bool chunked = false;
  std::optional<std::uint64_t> content_length;
  std::uint64_t range_first = 0;
  std::optional<std::uint64_t> range_total;
  std::string etag;  // as sent, quotes included
  std::string last_modified;

  // Kept over redirects.
  std::string linked_sha256;  // lower case; empty where the hub sent none
  std::optional<std::uint64_t> linked_bytes;

  // A line as it came, its end included. A status line starts the next response.
  void add_line(std::string_view line);
  bool is_success() const { return status == 200 || status == 206; }
  // Of the whole file, where the server says.
  std::optional<std::uint64_t> total_bytes() const { return status == 206 ? range_total : content_length; }
  // Without a length, the end of the body is still told from a broken connection.
  bool ends_itself() const { return chunked || major_version >= 2; }
};

}  // namespace adze::hub
