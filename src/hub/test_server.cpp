#include "hub/test_server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

namespace adze::hub {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return text;
}

TestRequest parse_request(const std::string& text) {
  TestRequest request;
  std::size_t at = text.find("\r\n");
  const std::string first = text.substr(0, at);
  const std::size_t space = first.find(' ');
  request.path = first.substr(space + 1, first.rfind(' ') - space - 1);
  while (at != text.npos && at + 2 < text.size()) {
    const std::size_t start = at + 2;
    at = text.find("\r\n", start);
    const std::string line = text.substr(start, at - start);
    const std::size_t colon = line.find(": ");
    if (colon != line.npos) request.headers[lower(line.substr(0, colon))] = line.substr(colon + 2);
  }
  return request;
}

}  // namespace

TestServer::TestServer(Answer answer) : answer_(std::move(answer)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_, generic, size) != 0 || ::listen(listener_, 8) != 0 ||
      ::getsockname(listener_, generic, &size) != 0) {
    throw std::runtime_error("no loopback socket for the test server");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

TestServer::~TestServer() {
  stop_ = true;
  thread_.join();
  ::close(listener_);
}

std::string TestServer::url(const std::string& path) const { return fmt::format("http://127.0.0.1:{}{}", port_, path); }

std::vector<TestRequest> TestServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void TestServer::serve() {
  while (!stop_) {
    pollfd poller{listener_, POLLIN, 0};
    if (::poll(&poller, 1, 10) <= 0) continue;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    serve_one(connection);
    ::close(connection);
  }
}

void TestServer::serve_one(int connection) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.find("\r\n\r\n") == text.npos) {
    const ssize_t n = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (n <= 0) return;
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  const TestRequest request = parse_request(text);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const std::string reply = answer_(request);
  for (std::size_t sent = 0; sent < reply.size();) {
    const ssize_t n = ::send(connection, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
  // The client hears the end before the socket goes: a reset would take bytes with it.
  ::shutdown(connection, SHUT_WR);
  pollfd poller{connection, POLLIN, 0};
  if (::poll(&poller, 1, 200) > 0) ::recv(connection, buffer.data(), buffer.size(), 0);
}

std::string answer(const std::string& status, const std::string& headers, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nConnection: close\r\n{}\r\n{}", status, headers, body);
}

std::string serve_file(const TestRequest& request, const std::string& body, const std::string& etag) {
  const std::string tag = fmt::format("ETag: {}\r\n", etag);
  const auto range = request.headers.find("range");
  const auto condition = request.headers.find("if-range");
  if (range != request.headers.end() && (condition == request.headers.end() || condition->second == etag)) {
    const std::size_t first = std::stoull(range->second.substr(6));
    if (first >= body.size())
      return answer("416 Range Not Satisfiable", fmt::format("Content-Range: bytes */{}\r\n", body.size()), "");
    return answer("206 Partial Content",
                  fmt::format("{}Content-Range: bytes {}-{}/{}\r\nContent-Length: {}\r\n", tag, first, body.size() - 1,
                              body.size(), body.size() - first),
                  body.substr(first));
  }
  return answer("200 OK", fmt::format("{}Content-Length: {}\r\n", tag, body.size()), body);
}

}  // namespace adze::hub
