// A web server for tests: loopback, one thread, one connection at a time, every answer written by the test itself. It
// can do what real servers do only when they fail: stop in the middle, lie about sizes, change the file between two
// requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace adze::hub {

struct TestRequest {
  std::string path;
  std::map<std::string, std::string> headers;  // names in lower case
};

class TestServer {
 public:
  // Returns the raw answer: status line, headers, body. The connection closes behind it.
  using Answer = std::function<std::string(const TestRequest&)>;
  explicit TestServer(Answer answer);
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::string url(const std::string& path) const;
  std::vector<TestRequest> requests() const;  // so far

 private:
  void serve();
  void serve_one(int connection);

  Answer answer_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<TestRequest> requests_;
  std::thread thread_;
};

// A file as a good server serves it: whole, or from `Range` on while `If-Range` still names this version.
std::string serve_file(const TestRequest& request, const std::string& body, const std::string& etag);
std::string answer(const std::string& status, const std::string& headers, const std::string& body);

}  // namespace adze::hub
