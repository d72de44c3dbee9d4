// One file from one URL to one name, over HTTP or HTTPS: resumed where a part is there, checked in size and SHA-256,
// and in place only when whole. Redirects are followed; a bearer token is not sent on to another host.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "hub/progress.hpp"

namespace adze::hub {

struct DownloadRequest {
  std::string url;
  std::filesystem::path target;
  std::string bearer_token;  // empty: none
  std::string sha256;        // expected, lower case; empty: unknown
  // The server is a model hub: its X-Linked-ETag and X-Linked-Size are the SHA-256 and size of the file behind a
  // redirect.
  bool hub_headers = false;
  // Looks at the complete file before it gets its name; an error discards it.
  std::function<Status(const std::filesystem::path&)> check;
  int retries = 4;                              // in a row, without a byte gained; 0: the first break is the end
  std::chrono::milliseconds retry_delay{1000};  // doubled each time
};

struct Download {
  std::uint64_t bytes = 0;
  std::string sha256;
  bool resumed = false;  // some of the bytes were there from an earlier call
};

// Errors, all of which leave the target as it was:
//   not_found         404
//   network           no network, a refusing server, a broken connection (the part stays: the next call goes on)
//   disk_full, io     the part stays
//   corrupt_file      wrong size or SHA-256 (the part is removed), or what `check` says
//   invalid_argument  a bad URL, or another download of the same name under way
//   cancelled         the part stays
Result<Download> download(const DownloadRequest& request, const ProgressCallback& progress);

}  // namespace adze::hub
