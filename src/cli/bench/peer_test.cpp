#include "cli/bench/peer.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace adze::cli::bench {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// As llama-bench 0.5.0 prints it, without the members that say how it was run.
constexpr std::string_view kLlamaBench = R"([
  {"build_commit": "0c1e570", "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 1207.509650,
   "samples_ts": [ 1309.75, 1105.27 ]},
  {"build_commit": "0c1e570", "n_prompt": 0, "n_gen": 64, "n_depth": 4096, "avg_ts": 31.5, "samples_ts": [ 31.5 ]}
])";
constexpr std::string_view kBatchedBench = R"(
{"n_kv_max": 4096, "n_threads": 2, "pp": 1, "tg": 32, "pl": 8, "n_kv": 264, "speed_pp": 625.1, "speed_tg": 610.81, "speed": 611.2}
{"n_kv_max": 4096, "n_threads": 2, "pp": 1, "tg": 32, "pl": 16, "n_kv": 528, "speed_pp": 903.3, "speed_tg": 810.82, "speed": 813.3}

)";

constexpr Case kPrompt{.kind = Case::Kind::prompt, .tokens = 512};
constexpr Case kDeep{.kind = Case::Kind::generate, .tokens = 64, .depth = 4096};
constexpr Case kEight{.kind = Case::Kind::generate, .tokens = 32, .depth = 1, .batch = 8};

TEST(Peer, RatesThatAreNoneAreNotUnderstood) {
  for (const std::string_view rate : {"0", "-5", "1e308", "\"fast\""}) {
    const std::string printed = fmt::format(R"([{{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": {}}}])", rate);
    EXPECT_THAT(parse_llama_bench(printed, nullptr).error().message, HasSubstr("without its rate")) << rate;
  }
}

TEST(Peer, ReadsLlamaBench) {
  std::string version;
  const auto samples = parse_llama_bench(kLlamaBench, &version);
  ASSERT_TRUE(samples) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ((*samples)[0].what, kPrompt);
  EXPECT_DOUBLE_EQ((*samples)[0].tokens_per_second, 1207.50965);
  EXPECT_EQ((*samples)[1].what, kDeep);
  EXPECT_DOUBLE_EQ((*samples)[1].tokens_per_second, 31.5);
  EXPECT_EQ(version, "llama.cpp 0c1e570");
}

TEST(Peer, ReadsBatchedBench) {
  const auto samples = parse_batched_bench(kBatchedBench);
  ASSERT_TRUE(samples) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ((*samples)[0].what, kEight);
  EXPECT_DOUBLE_EQ((*samples)[1].tokens_per_second, 810.82);
  EXPECT_EQ((*samples)[1].what.batch, 16);
}

TEST(Peer, RefusesOtherOutput) {
  for (const std::string_view text : {"", "hello", "{}", "[1]", "[{}]", R"([{"n_prompt": "512"}])", "[null]",
                                      R"([{"n_prompt": -1, "n_gen": 0, "n_depth": 0, "avg_ts": 1}])"}) {
    const auto samples = parse_llama_bench(text, nullptr);
    ASSERT_FALSE(samples) << text;
    EXPECT_THAT(samples.error().hint, HasSubstr("llama-bench"));
  }
  for (const std::string_view text : {"", "hello\n", "{}\n", R"({"pp": 1, "tg": 2, "pl": 3})"})
    EXPECT_FALSE(parse_batched_bench(text)) << text;
}

// A program that stands for the peer.
class FakePeer {
 public:
  FakePeer() : folder_(fs::path(::testing::TempDir()) / "adze-peer") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~FakePeer() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  FakePeer(const FakePeer&) = delete;
  FakePeer& operator=(const FakePeer&) = delete;

  // It says `output` and what it was called with goes to the file `calls`.
  void write(const std::string& name, std::string_view output, std::string_view end = "") const {
    std::ofstream(folder_ / name) << "#!/bin/sh\necho \"" << name << " $*\" >> '" << (folder_ / "calls").string()
                                  << "'\ncat <<'END'\n"
                                  << output << "\nEND\n"
                                  << end << "\n";
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }
  fs::path program() const { return folder_ / "llama-bench"; }
  std::string calls() const {
    std::ifstream file(folder_ / "calls");
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  fs::path folder_;
};

constexpr Case kEightOfNothing{.kind = Case::Kind::generate, .tokens = 32, .batch = 8};

TEST(Peer, IsRunOnceForEachKindOfCase) {
  const FakePeer fake;
  fake.write("llama-bench", kLlamaBench);
  fake.write("llama-batched-bench", kBatchedBench);
  const auto peer = find_peer(fake.program());
  ASSERT_TRUE(peer) << peer.error().message;
  const auto round = run_peer(*peer, "m.gguf", 2, std::vector{kDeep, kEightOfNothing, kPrompt});
  ASSERT_TRUE(round) << round.error().message;
  EXPECT_EQ(round->version, "llama.cpp 0c1e570");
  EXPECT_EQ(round->rates, (std::vector<std::optional<double>>{31.5, 610.81, 1207.50965}));
  EXPECT_THAT(fake.calls(), HasSubstr("llama-bench -m m.gguf -t 2 -r 1 -o json -p 512 -n 0\n"));
  EXPECT_THAT(fake.calls(), HasSubstr("llama-bench -m m.gguf -t 2 -r 1 -o json -p 0 -n 64 -d 4096\n"));
  EXPECT_THAT(fake.calls(), HasSubstr("-c 264 -npp 1 -ntg 32 -npl 8 --output-format jsonl\n"));
}

TEST(Peer, WithoutABatchedProgramBatchesHaveNoRate) {
  const FakePeer fake;
  fake.write("llama-bench", kLlamaBench);
  const auto round = run_peer(*find_peer(fake.program()), "m.gguf", 2, std::vector{kPrompt, kEightOfNothing});
  ASSERT_TRUE(round) << round.error().message;
  EXPECT_EQ(round->rates, (std::vector<std::optional<double>>{1207.50965, std::nullopt}));
}

TEST(Peer, AFailureIsOneLine) {
  EXPECT_EQ(find_peer("/no/such/llama-bench").error().code, ErrorCode::not_found);
  EXPECT_THAT(find_peer("/no/such/llama-bench").error().message, HasSubstr("/no/such/llama-bench"));
  const FakePeer fake;
  fake.write("llama-bench", "[", "echo 'loading' >&2; echo 'error: failed to load model' >&2; exit 1");
  const auto failed = run_peer(*find_peer(fake.program()), "m.gguf", 2, std::vector{kPrompt});
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("ended with status 1: error: failed to load model"));
  EXPECT_EQ(failed.error().message.find('\n'), std::string::npos);
  fake.write("llama-bench", kLlamaBench);
  const auto missing =
      run_peer(*find_peer(fake.program()), "m.gguf", 2, std::vector{Case{.kind = Case::Kind::prompt, .tokens = 7}});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("did not measure 'prompt 7'"));
}

}  // namespace
}  // namespace adze::cli::bench
