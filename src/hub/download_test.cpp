#include "hub/download.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.hpp"
#include "hub/part_file.hpp"
#include "hub/sha256.hpp"
#include "hub/test_server.hpp"

namespace adze::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// 300 KB that no offset confuses with another.
std::string make_body(char first) {
  std::string body(300'000, '\0');
  std::uint32_t state = static_cast<unsigned char>(first);
  for (char& c : body) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return body;
}

std::string hex_of(const std::string& body) {
  Sha256 hash = Sha256::create().value();
  hash.update(std::as_bytes(std::span(body)));
  return hash.hex();
}

class DownloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("no_proxy", "127.0.0.1", 1);
    folder_ = fs::path(::testing::TempDir()) /
              fmt::format("adze_download_{}", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    target_ = folder_ / "model.bin";
  }
  void TearDown() override { fs::remove_all(folder_); }

  DownloadRequest request(const TestServer& server) const {
    DownloadRequest made;
    made.url = server.url("/model.bin");
    made.target = target_;
    made.retry_delay = std::chrono::milliseconds(0);
    made.retries = 2;
    return made;
  }
  std::string part() const { return target_.string() + ".part"; }
  std::string content() const { return read_file(target_, 1 << 20).value_or("(nothing)"); }
  // The folder holds these names and no others.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  // A first call that breaks off after 100,000 bytes.
  void leave_part(const std::string& url, const std::string& body, const std::string& etag) {
    auto left = PartFile::open(target_);
    ASSERT_TRUE(left);
    ASSERT_TRUE(left->restart({url, etag, "", body.size()}));
    ASSERT_TRUE(left->append(std::as_bytes(std::span(body).first(100'000))));
  }

  fs::path folder_, target_;
  const std::string body_ = make_body('a'), other_ = make_body('b');
};

TEST_F(DownloadTest, WholeFile) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  std::uint64_t last = 0;
  const auto done = download(request(server), [&](const Progress& p) {
    EXPECT_GE(p.done, last);
    last = p.done;
    return true;
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->bytes, body_.size());
  EXPECT_EQ(done->sha256, hex_of(body_));
  EXPECT_FALSE(done->resumed);
  EXPECT_EQ(content(), body_);
  EXPECT_THAT(names(), ::testing::ElementsAre("model.bin", "model.bin.from"));
  EXPECT_EQ(origin_of(target_), server.url("/model.bin"));
}

TEST_F(DownloadTest, ResumesAnEarlierPart) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  leave_part(server.url("/model.bin"), body_, "\"v1\"");
  const auto done = download(request(server), {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->resumed);
  EXPECT_EQ(done->sha256, hex_of(body_));
  EXPECT_EQ(content(), body_);
  EXPECT_EQ(server.requests()[0].headers.at("range"), "bytes=100000-");
  EXPECT_EQ(server.requests()[0].headers.at("if-range"), "\"v1\"");
}

TEST_F(DownloadTest, ChangedFileStartsAfresh) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, other_, "\"v2\""); });
  leave_part(server.url("/model.bin"), body_, "\"v1\"");
  const auto done = download(request(server), {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(done->resumed);
  EXPECT_EQ(content(), other_);
}

TEST_F(DownloadTest, ChangedFileOnAServerThatIgnoresIfRange) {
  TestServer server([&](TestRequest r) {
    r.headers.erase("if-range");
    return serve_file(r, other_, "\"v2\"");
  });
  leave_part(server.url("/model.bin"), body_, "\"v1\"");
  ASSERT_TRUE(download(request(server), {}));
  EXPECT_EQ(content(), other_);
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST_F(DownloadTest, PartOfAnotherAddressIsDropped) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  leave_part(server.url("/another.bin"), other_, "\"v1\"");
  ASSERT_TRUE(download(request(server), {}));
  EXPECT_EQ(content(), body_);
}

TEST_F(DownloadTest, PartLongerThanTheFileStartsAfresh) {
  const std::string small = body_.substr(0, 50'000);
  TestServer server([&](TestRequest r) {
    r.headers.erase("if-range");
    return serve_file(r, small, "\"v1\"");
  });
  leave_part(server.url("/model.bin"), body_, "\"v1\"");
  ASSERT_TRUE(download(request(server), {}));
  EXPECT_EQ(content(), small);
}

TEST_F(DownloadTest, BrokenConnectionsAreResumedInOneCall) {
  std::atomic<int> calls{0};
  TestServer server([&](const TestRequest& r) {
    std::string reply = serve_file(r, body_, "\"v1\"");
    return calls++ < 3 ? reply.substr(0, reply.size() / 2) : reply;
  });
  const auto done = download(request(server), {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(content(), body_);
  EXPECT_EQ(calls, 4);
}

TEST_F(DownloadTest, TruncatedForGoodIsAnError) {
  const auto cut = [&](const TestRequest& r) {
    return r.headers.contains("range") ? std::string() : serve_file(r, body_, "\"v1\"").substr(0, 200'000);
  };
  TestServer server(cut);
  const auto done = download(request(server), {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::network);
  EXPECT_THAT(done.error().hint, HasSubstr("go on from here"));
  EXPECT_FALSE(fs::exists(target_));
  EXPECT_TRUE(fs::exists(part()));  // for the next call
}

TEST_F(DownloadTest, TruncatedByAServerThatCannotResume) {
  TestServer server([&](const TestRequest&) {
    return answer("200 OK", fmt::format("Content-Length: {}\r\n", body_.size()), body_.substr(0, 1000));
  });
  const auto done = download(request(server), {});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("closed after 1000 of 300000 bytes"));
  EXPECT_LE(server.requests().size(), 5u);
  EXPECT_FALSE(fs::exists(target_));
}

TEST_F(DownloadTest, NeverMoreThanAnnounced) {
  // The excess behind Content-Length belongs to nobody.
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\"") + "and more"; });
  ASSERT_TRUE(download(request(server), {}));
  EXPECT_EQ(content(), body_);
}

TEST_F(DownloadTest, OversizeResumeIsRefused) {
  // The part's version has 300,000 bytes; the server sends the rest in chunks, and 50 bytes more.
  TestServer server([&](const TestRequest&) {
    const std::string rest = body_.substr(100'000) + std::string(50, 'x');
    return answer("206 Partial Content",
                  "ETag: \"v1\"\r\nContent-Range: bytes 100000-300049/*\r\nTransfer-Encoding: chunked\r\n",
                  fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", rest.size(), rest));
  });
  leave_part(server.url("/model.bin"), body_, "\"v1\"");
  const auto done = download(request(server), {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(done.error().message, HasSubstr("more than the 300000 bytes"));
  EXPECT_FALSE(fs::exists(target_));
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(DownloadTest, ChunkedBodyWithoutALength) {
  TestServer server([&](const TestRequest&) {
    return answer("200 OK", "Transfer-Encoding: chunked\r\n",
                  fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body_.size(), body_));
  });
  ASSERT_TRUE(download(request(server), {}));
  EXPECT_EQ(content(), body_);
}

TEST_F(DownloadTest, UnknownLengthNeedsASha256) {
  TestServer server([&](const TestRequest&) { return answer("200 OK", "", body_); });
  EXPECT_THAT(download(request(server), {}).error().message, HasSubstr("does not say how long"));
  EXPECT_FALSE(fs::exists(target_));
  DownloadRequest known = request(server);
  known.sha256 = hex_of(body_);
  ASSERT_TRUE(download(known, {}));
  EXPECT_EQ(content(), body_);
}

TEST_F(DownloadTest, WrongSha256IsRemoved) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  DownloadRequest wrong = request(server);
  wrong.sha256 = hex_of(other_);
  const auto done = download(wrong, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(done.error().message, HasSubstr(hex_of(other_)));
  EXPECT_TRUE(names().empty());
}

TEST_F(DownloadTest, HubHeadersSurviveTheRedirect) {
  for (const std::string& promised : {body_, other_}) {
    TestServer server([&](const TestRequest& r) {
      if (r.path == "/storage") return serve_file(r, body_, "\"blob\"");
      return answer(
          "302 Found",
          fmt::format("Location: /storage\r\nX-Linked-ETag: \"{}\"\r\nX-Linked-Size: {}\r\nContent-Length: 0\r\n",
                      hex_of(promised), body_.size()),
          "");
    });
    DownloadRequest hub = request(server);
    hub.hub_headers = true;
    const auto done = download(hub, {});
    EXPECT_EQ(done.has_value(), promised == body_);
    fs::remove(target_);
  }
}

TEST_F(DownloadTest, TokenStaysWithItsHost) {
  TestServer storage([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  TestServer hub([&](const TestRequest&) {
    return answer("302 Found", fmt::format("Location: {}\r\nContent-Length: 0\r\n", storage.url("/blob")), "");
  });
  DownloadRequest private_file = request(hub);
  private_file.bearer_token = "secret";
  ASSERT_TRUE(download(private_file, {}));
  EXPECT_EQ(hub.requests()[0].headers.at("authorization"), "Bearer secret");
  EXPECT_FALSE(storage.requests()[0].headers.contains("authorization"));
}

TEST_F(DownloadTest, StatusesBecomeSentences) {
  struct Case {
    const char* status;
    ErrorCode code;
    const char* says;
    std::size_t requests;
  };
  for (const Case& c : {Case{"404 Not Found", ErrorCode::not_found, "has no 'model.bin'", 1},
                        Case{"401 Unauthorized", ErrorCode::network, "access is refused", 1},
                        Case{"403 Forbidden", ErrorCode::network, "access is refused", 1},
                        Case{"400 Bad Request", ErrorCode::network, "status 400", 1},
                        Case{"503 Unavailable", ErrorCode::network, "status 503", 3}}) {
    TestServer server([&](const TestRequest&) { return answer(c.status, "Content-Length: 5\r\n", "sorry"); });
    const auto done = download(request(server), {});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, c.code);
    EXPECT_THAT(done.error().message, HasSubstr(c.says));
    EXPECT_FALSE(done.error().hint.empty());
    EXPECT_EQ(server.requests().size(), c.requests);
    EXPECT_FALSE(fs::exists(target_));
  }
}

TEST_F(DownloadTest, NoNetwork) {
  DownloadRequest nowhere;
  nowhere.target = target_;
  nowhere.retries = 0;
  nowhere.url = "http://127.0.0.1:1/model.bin";
  EXPECT_THAT(download(nowhere, {}).error().message, HasSubstr("no connection"));
  ::setenv("no_proxy", "*", 1);
  nowhere.url = "http://host.invalid/model.bin";
  EXPECT_EQ(download(nowhere, {}).error().code, ErrorCode::network);
  nowhere.url = "ftp://host.invalid/model.bin";
  EXPECT_EQ(download(nowhere, {}).error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(names().empty());
}

TEST_F(DownloadTest, RefusedConnectionsAndDeadEndsAreNotRepeated) {
  const auto started = std::chrono::steady_clock::now();
  DownloadRequest nowhere;
  nowhere.target = target_;
  nowhere.url = "http://127.0.0.1:1/model.bin";  // with the usual retries and delays
  EXPECT_EQ(download(nowhere, {}).error().code, ErrorCode::network);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(1));

  TestServer circle(
      [&](const TestRequest&) { return answer("302 Found", "Location: /again\r\nContent-Length: 0\r\n", ""); });
  EXPECT_THAT(download(request(circle), {}).error().message, HasSubstr("redirects more than 10 times"));
  TestServer elsewhere([&](const TestRequest&) {
    return answer("302 Found", "Location: ftp://127.0.0.1/x\r\nContent-Length: 0\r\n", "");
  });
  EXPECT_THAT(download(request(elsewhere), {}).error().message, HasSubstr("redirects to an address that is not"));
  TestServer empty([&](const TestRequest&) { return answer("200 OK", "Content-Length: 0\r\n", ""); });
  EXPECT_THAT(download(request(empty), {}).error().message, HasSubstr("an empty file"));
  EXPECT_TRUE(names().empty());
}

TEST_F(DownloadTest, NoRetriesMeansNone) {
  std::atomic<int> calls{0};
  TestServer server([&](const TestRequest& r) {
    std::string reply = serve_file(r, body_, "\"v1\"");
    return calls++ == 0 ? reply.substr(0, reply.size() / 2) : reply;
  });
  DownloadRequest once = request(server);
  once.retries = 0;
  EXPECT_THAT(download(once, {}).error().message, HasSubstr("the connection closed after"));
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(download(once, {}));  // and the next call goes on
  EXPECT_EQ(content(), body_);
}

TEST_F(DownloadTest, MoreThanTheDiskHoldsIsRefusedFirst) {
  TestServer server([&](const TestRequest&) { return answer("200 OK", "Content-Length: 1125899906842624\r\n", "x"); });
  const auto done = download(request(server), {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::disk_full);
  EXPECT_THAT(done.error().message, HasSubstr("needs 1125899906842624 more bytes"));
}

TEST_F(DownloadTest, DiskFullInTheMiddle) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  fs::create_directories(folder_);
  fs::create_symlink("/dev/full", part());
  const auto done = download(request(server), {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::disk_full);
  EXPECT_FALSE(fs::exists(target_));
}

TEST_F(DownloadTest, CancelKeepsThePart) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  const auto done = download(request(server), [](const Progress& p) { return p.done == 0; });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::cancelled);
  EXPECT_FALSE(fs::exists(target_));
}

TEST_F(DownloadTest, OneAtATime) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  const auto other = PartFile::open(target_);
  ASSERT_TRUE(other);
  EXPECT_THAT(download(request(server), {}).error().message, HasSubstr("another download of 'model.bin' is under way"));
}

TEST_F(DownloadTest, CheckDecidesBeforeTheName) {
  TestServer server([&](const TestRequest& r) { return serve_file(r, body_, "\"v1\""); });
  DownloadRequest checked = request(server);
  checked.check = [&](const fs::path& file) -> Status {
    EXPECT_EQ(fs::file_size(file), body_.size());
    return fail(ErrorCode::not_a_model, "no");
  };
  EXPECT_EQ(download(checked, {}).error().code, ErrorCode::not_a_model);
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace adze::hub
