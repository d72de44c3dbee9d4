// The rules that keep a file whole: bytes are appended to a part only under the validator (ETag or date) they began
// with; a server that answers 200 instead of 206, another ETag or another total size starts the part afresh; what
// arrives is counted against what was announced; and the end is judged by size, SHA-256 where known, and the caller's
// check.
#include "hub/download.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/limits.hpp"
#include "hub/curl_library.hpp"
#include "hub/part_file.hpp"
#include "hub/response.hpp"
#include "hub/sha256.hpp"

namespace adze::hub {
namespace {

constexpr long kConnectTimeoutSeconds = 30;
constexpr long kStallSeconds = 60;  // without a byte
enum class Outcome : std::uint8_t { complete, retry, restart, failed };

struct Attempt {
  Outcome outcome = Outcome::failed;
  Error error;
};

std::string host_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme != url.npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (const std::size_t at = url.rfind('@'); at != url.npos) url.remove_prefix(at + 1);
  return std::string(url);
}

// One exchange with the server. The callbacks run inside perform(), on its thread.
class Transfer {
 public:
  Transfer(const CurlLibrary& curl, const DownloadRequest& request, PartFile& part, const ProgressCallback& progress)
      : curl_(curl), request_(request), part_(part), progress_(progress), name_(request.target.filename().string()) {}

  Attempt perform(bool resume);
  const Response& response() const { return response_; }

 private:
  template <class Value>
  void set(CURL* handle, CURLoption option, Value value) {
    const CURLcode code = curl_.easy_setopt(handle, option, value);
    ADZE_CHECK(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_.easy_strerror(code));
  }
  void configure(CURL* handle, curl_slist* headers);
  Status begin_body();
  Status check_announced_size(std::uint64_t total) const;
  Attempt judge(CURLcode code);
  Attempt judge_status();
  Attempt network(Outcome outcome, std::string_view what, std::string hint) const;

  static std::size_t on_header(char* data, std::size_t, std::size_t count, void* self);
  static std::size_t on_body(char* data, std::size_t, std::size_t count, void* self);
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t);

  const CurlLibrary& curl_;
  const DownloadRequest& request_;
  PartFile& part_;
  const ProgressCallback& progress_;
  std::string name_;
  Response response_;
  bool resuming_ = false;
  bool body_begun_ = false;
  bool start_afresh_ = false;     // the server's file is another one than the part's
  std::optional<Error> problem_;  // why a callback stopped the transfer
};

void Transfer::configure(CURL* handle, curl_slist* headers) {
  set(handle, CURLOPT_URL, request_.url.c_str());
  set(handle, CURLOPT_USERAGENT, "adze");
  set(handle, CURLOPT_FOLLOWLOCATION, 1L);
  set(handle, CURLOPT_MAXREDIRS, limits::kMaxRedirects);
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  // A secure download stays secure.
  set(handle, CURLOPT_REDIR_PROTOCOLS_STR, request_.url.starts_with("https:") ? "https" : "http,https");
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_CONNECTTIMEOUT, kConnectTimeoutSeconds);
  set(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(handle, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  set(handle, CURLOPT_BUFFERSIZE, 256L << 10);
  set(handle, CURLOPT_HTTPHEADER, headers);
  set(handle, CURLOPT_HEADERFUNCTION, &on_header);
  set(handle, CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(handle, CURLOPT_WRITEFUNCTION, &on_body);
  set(handle, CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(handle, CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(handle, CURLOPT_XFERINFODATA, static_cast<void*>(this));
  set(handle, CURLOPT_NOPROGRESS, 0L);
}

Attempt Transfer::perform(bool resume) {
  resuming_ = resume;
  CURL* handle = curl_.easy_init();
  if (handle == nullptr) return {Outcome::failed, {ErrorCode::out_of_memory, "no memory to start a download", ""}};
  curl_slist* headers = nullptr;
  const auto add = [&](const std::string& line) { headers = curl_.slist_append(headers, line.c_str()); };
  if (resuming_) {
    add(fmt::format("Range: bytes={}-", part_.size()));
    add(fmt::format("If-Range: {}", part_.version().validator()));
  }
  // As a header of ours, curl drops it on the way to another host.
  if (!request_.bearer_token.empty()) add(fmt::format("Authorization: Bearer {}", request_.bearer_token));
  configure(handle, headers);
  const CURLcode code = curl_.easy_perform(handle);
  curl_.easy_cleanup(handle);
  curl_.slist_free_all(headers);
  return judge(code);
}

std::size_t Transfer::on_header(char* data, std::size_t, std::size_t count, void* self) {
  static_cast<Transfer*>(self)->response_.add_line({data, count});
  return count;
}

std::size_t Transfer::on_body(char* data, std::size_t, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  if (!transfer.response_.is_success()) return count;  // an error page: read, for the connection's sake, and dropped
  Status status = transfer.body_begun_ ? Status{} : transfer.begin_body();
  const std::uint64_t total = transfer.part_.version().size;
  if (status && total != 0 && count > total - transfer.part_.size()) {
    status = fail(ErrorCode::corrupt_file,
                  fmt::format("{} sends more than the {} bytes that '{}' has", host_of(transfer.request_.url), total,
                              transfer.name_),
                  "try again later, or another source");
    transfer.part_.discard();
  }
  if (status) status = transfer.part_.append(std::as_bytes(std::span(data, count)));
  if (status) return count;
  transfer.problem_ = std::move(status.error());
  return 0;
}

int Transfer::on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(self);
  if (!transfer.progress_) return 0;
  const Progress progress{Stage::fetching, transfer.name_, transfer.part_.size(), transfer.part_.version().size};
  return transfer.progress_(progress) ? 0 : 1;
}

Status Transfer::check_announced_size(std::uint64_t total) const {
  const std::uint64_t missing = total - std::min(total, part_.size());
  struct statvfs disk{};
  if (::statvfs(request_.target.parent_path().c_str(), &disk) != 0) return {};
  const std::uint64_t available = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (missing <= available) return {};
  return fail(ErrorCode::disk_full,
              fmt::format("'{}' needs {} more bytes, but '{}' has only {} left", name_, missing,
                          request_.target.parent_path().string(), available),
              "free some space, or choose another folder with --models-dir");
}

// The first byte of a 200 or 206: decides whether it belongs behind the bytes that are there.
Status Transfer::begin_body() {
  body_begun_ = true;
  RemoteVersion version{request_.url, response_.etag, response_.last_modified, response_.total_bytes().value_or(0)};
  const auto afresh = [&](std::string_view why) {
    start_afresh_ = true;
    return fail(ErrorCode::network, fmt::format("'{}' cannot be resumed: {}", name_, why));
  };
  if (request_.hub_headers && response_.linked_bytes && version.size != 0 && version.size != *response_.linked_bytes) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("the hub says that '{}' has {} bytes, the server sends {}", name_, *response_.linked_bytes,
                            version.size),
                "try again later");
  }
  if (response_.status == 206) {
    if (!resuming_ || response_.range_first != part_.size()) return afresh("the server sends another part of it");
    if (version.size != 0 && part_.version().size != 0 && version.size != part_.version().size)
      return afresh("its size changed");
    if (!version.etag.empty() && version.etag != part_.version().etag) return afresh("it changed on the server");
    return check_announced_size(version.size);
  }
  ADZE_TRY_STATUS(part_.restart(version));
  return check_announced_size(version.size);
}

Attempt Transfer::network(Outcome outcome, std::string_view what, std::string hint) const {
  return {outcome,
          {ErrorCode::network, fmt::format("cannot download '{}' from {}: {}", name_, host_of(request_.url), what),
           std::move(hint)}};
}

Attempt Transfer::judge(CURLcode code) {
  if (start_afresh_) return {Outcome::restart, std::move(*problem_)};
  if (problem_) return {Outcome::failed, std::move(*problem_)};
  const std::string go_on = "run the command again: it will go on from here";
  switch (code) {  // libcurl's list is open: everything else is reported in its own words
    case CURLE_OK: return judge_status();
    case CURLE_ABORTED_BY_CALLBACK:
      return {Outcome::failed, {ErrorCode::cancelled, fmt::format("the download of '{}' was cancelled", name_), go_on}};
    case CURLE_TOO_MANY_REDIRECTS:
      return network(Outcome::failed, fmt::format("it redirects more than {} times", limits::kMaxRedirects),
                     "check the address");
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      if (response_.status / 100 == 3) {
        return network(Outcome::failed, "it redirects to an address that is not followed, as from https to http",
                       "give the address of the file itself");
      }
      return {Outcome::failed,
              {ErrorCode::invalid_argument, fmt::format("'{}' is not an http or https address", request_.url), ""}};
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return network(Outcome::failed, "the host is not found", "check the address and the network connection");
    case CURLE_COULDNT_CONNECT:  // a server that went away may come back; one that was never there will not
      return network(part_.gained() ? Outcome::retry : Outcome::failed, "no connection to the host",
                     "check the network connection");
    case CURLE_PARTIAL_FILE:
      return network(Outcome::retry,
                     fmt::format("the connection closed after {} of {} bytes", part_.size(), part_.version().size),
                     go_on);
    case CURLE_OPERATION_TIMEDOUT: return network(Outcome::retry, "the server does not answer", go_on);
    default: break;
  }
  return network(Outcome::retry, curl_.easy_strerror(code), go_on);
}

Attempt Transfer::judge_status() {
  const long status = response_.status;
  if (response_.is_success()) {
    if (!body_begun_) {  // no body at all
      if (auto begun = begin_body(); !begun)
        return {start_afresh_ ? Outcome::restart : Outcome::failed, std::move(begun.error())};
    }
    const std::uint64_t total = part_.version().size;
    if (total != 0 && part_.size() != total) {
      return network(Outcome::retry, fmt::format("{} of {} bytes arrived", part_.size(), total),
                     "run the command again");
    }
    if (part_.size() == 0) return network(Outcome::failed, "the server sends an empty file", "check the address");
    if (total == 0 && !response_.ends_itself() && request_.sha256.empty()) {
      part_.discard();
      return network(Outcome::failed, "the server does not say how long the file is, so it cannot be checked",
                     "give its SHA-256 with --sha256");
    }
    return {Outcome::complete, {}};
  }
  if (status == 416) return network(Outcome::restart, "the part that is here is longer than the file", "");
  if (status == 404 || status == 410) {
    return {Outcome::failed,
            {ErrorCode::not_found, fmt::format("{} has no '{}' (status {})", host_of(request_.url), name_, status),
             "check the address: names are case-sensitive"}};
  }
  if (status == 401 || status == 403) {
    return network(Outcome::failed, fmt::format("access is refused (status {})", status),
                   "set HF_TOKEN to a token that may read it, and accept the model's licence on its page");
  }
  const bool passing = status == 408 || status == 429 || status >= 500;
  return network(passing ? Outcome::retry : Outcome::failed, fmt::format("the server answers with status {}", status),
                 passing ? "try again later" : "check the address");
}

// False when the caller wants no more.
bool wait(std::chrono::milliseconds time, const ProgressCallback& progress, const PartFile& part) {
  constexpr std::chrono::milliseconds kStep{100};
  const std::string name = part.target().filename().string();
  for (; time.count() > 0; time -= kStep) {
    if (progress && !progress({Stage::waiting, name, part.size(), part.version().size})) return false;
    std::this_thread::sleep_for(std::min(time, kStep));
  }
  return true;
}

Result<Download> finish(const DownloadRequest& request, const Response& response, PartFile& part) {
  Download done{part.size(), part.sha256(), false};
  const std::string name = request.target.filename().string();
  const std::string expected = !request.sha256.empty() ? request.sha256
                               : request.hub_headers   ? response.linked_sha256
                                                       : "";
  Status checked;
  if (!expected.empty() && done.sha256 != expected) {
    checked =
        fail(ErrorCode::corrupt_file,
             fmt::format("'{}' arrived with the SHA-256 {}, expected {}: it was removed", name, done.sha256, expected),
             "download it again, or check the expected SHA-256");
  } else if (request.check) {
    checked = request.check(request.target.string() + ".part");
  }
  if (!checked) {
    part.discard();
    return tl::unexpected(std::move(checked.error()));
  }
  ADZE_TRY_STATUS(part.commit());
  return done;
}

}  // namespace

Result<Download> download(const DownloadRequest& request, const ProgressCallback& progress) {
  if (!curl_library()) return tl::unexpected(curl_library().error());
  ADZE_TRY(PartFile part, PartFile::open(request.target));
  bool resume = part.size() > 0 && part.version().url == request.url && !part.version().validator().empty();
  if (resume) ADZE_TRY_STATUS(part.resume(progress));
  const bool resumed = resume;
  std::uint64_t most = part.size();
  int idle = 0;  // attempts in a row that gained nothing
  for (int attempt = 0;; ++attempt) {
    Transfer transfer(*curl_library(), request, part, progress);
    Attempt tried = transfer.perform(resume);
    switch (tried.outcome) {
      case Outcome::complete: {
        ADZE_TRY(Download done, finish(request, transfer.response(), part));
        done.resumed = resumed && transfer.response().status == 206;
        return done;
      }
      case Outcome::failed: return tl::unexpected(std::move(tried.error));
      case Outcome::restart:
        if (!resume) return tl::unexpected(std::move(tried.error));
        resume = false;
        continue;
      case Outcome::retry: break;
    }
    idle = part.size() > most ? 0 : idle + 1;
    most = std::max(most, part.size());
    if (request.retries == 0 || idle > request.retries || attempt >= limits::kMaxDownloadAttempts)
      return tl::unexpected(std::move(tried.error));
    if (!wait(request.retry_delay * (1 << std::min(idle, 5)), progress, part)) {
      return fail(ErrorCode::cancelled,
                  fmt::format("the download of '{}' was cancelled", request.target.filename().string()));
    }
    resume = part.size() > 0 && part.version().url == request.url && !part.version().validator().empty();
  }
}

}  // namespace adze::hub
