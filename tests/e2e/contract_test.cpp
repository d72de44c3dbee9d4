// adze bench contract, compare and baseline: their exit codes and what they leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/process.hpp"

namespace adze::e2e {
namespace {

using testing::HasSubstr;

const std::string kModel = std::string(ADZE_TEST_DATA) + "/oracles/llama-gqa-rope3/llama-gqa-rope3-Q8_0.gguf";

class ContractTest : public testing::Test {
 protected:
  Outcome adze(std::vector<std::string> arguments) {
    return run(sandbox, {.arguments = std::move(arguments), .input = {}, .environment = {}, .stdout_file = {}});
  }
  Outcome contract(const std::string& more, const std::string& out, std::vector<std::string> flags = {}) {
    const std::string file = sandbox.write(
        "c.json",
        R"({"contract": 1, "id": "c", "model": ")" + kModel +
            R"(", "max_tokens": 12, "requests": [)"
            R"({"name": "a", "random_ids": 100}, {"name": "b", "random_ids": 100, "ids": [5], "after": ["a"]}])" +
            more + "}");
    std::vector<std::string> words{"bench", "contract", file, "--rounds", "2", "--out", sandbox.file(out)};
    words.insert(words.end(), flags.begin(), flags.end());
    return adze(words);
  }
  nlohmann::json metrics(const std::string& folder) const {
    std::ifstream file(sandbox.file(folder) + "/metrics.json");
    return nlohmann::json::parse(file);
  }
  Sandbox sandbox;
};

TEST_F(ContractTest, PassesAndKeepsItsResult) {
  const Outcome outcome = contract(R"(, "checks": {"prefix_reuse": 0.4})", "one");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# c: PASS"));
  for (const char* name :
       {"contract.json", "environment.json", "metrics.json", "routes.json", "trace.json", "summary.md"}) {
    EXPECT_TRUE(std::filesystem::exists(sandbox.file("one") + "/" + name)) << name;
  }
  const nlohmann::json result = metrics("one");
  EXPECT_EQ(result["requests"][1]["reused_tokens"], 100);
  EXPECT_EQ(result["requests"][1]["prompt_tokens"], 101);
  EXPECT_EQ(contract("", "one").exit_code, 1) << "a result is never overwritten";

  EXPECT_EQ(adze({"bench", "compare", sandbox.file("one"), sandbox.file("one")}).exit_code, 0);
  EXPECT_EQ(adze({"bench", "baseline", sandbox.file("one"), sandbox.file("kept")}).exit_code, 0);
  EXPECT_EQ(adze({"bench", "baseline", sandbox.file("one"), sandbox.file("kept")}).exit_code, 1);
  EXPECT_EQ(adze({"bench", "compare", sandbox.file("one"), sandbox.file("nothing")}).exit_code, 1);

  // A baseline that nothing reaches.
  nlohmann::json fast = metrics("kept");
  fast["figures"]["decode_rate"] = 1e12;
  sandbox.write("kept/metrics.json", fast.dump());
  const Outcome slow = contract(R"(, "checks": {"prefix_reuse": 0.4})", "two", {"--baseline", sandbox.file("kept")});
  EXPECT_EQ(slow.exit_code, 4) << slow.err;
  EXPECT_THAT(slow.out, HasSubstr("# c: SLOW"));
}

TEST_F(ContractTest, TellsWhatIsWrong) {
  const Outcome unreachable = contract(R"(, "checks": {"prefix_reuse": 0.9})", "reuse");
  EXPECT_EQ(unreachable.exit_code, 3);
  EXPECT_THAT(unreachable.out, HasSubstr("of the prompts was reused"));
  EXPECT_EQ(contract(R"(, "sped": 1)", "x").exit_code, 2);
  EXPECT_EQ(contract("", "x", {"--model", "nobody"}).exit_code, 1);
  EXPECT_EQ(adze({"bench", "contract", "no-such-file.json"}).exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(sandbox.file("x")));

  const std::string tampered = sandbox.write(
      "t.json", R"({"contract": 1, "id": "t", "model": ")" + kModel +
                    R"(", "requests": [{"name": "a", "ids": [1, 2, 3], "max_tokens": 3, "oracle": [1, 1, 1]}]})");
  const Outcome wrong = adze({"bench", "contract", tampered, "--rounds", "2", "--out", sandbox.file("t")});
  EXPECT_EQ(wrong.exit_code, 3) << wrong.err;
  EXPECT_THAT(wrong.out, HasSubstr("not what the oracle says"));
  EXPECT_EQ(adze({"bench", "baseline", sandbox.file("t"), sandbox.file("kept")}).exit_code, 1);
}

}  // namespace
}  // namespace adze::e2e
