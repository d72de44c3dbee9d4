#include "cli/contract/contract.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "cli/contract/report.hpp"

namespace adze::cli::contract {
namespace {

Result<Contract> parse(const std::string& requests, const std::string& more = "") {
  return parse_contract(R"({"contract": 1, "id": "x", "model": "m", "requests": [)" + requests + "]" + more + "}",
                        "x.json", "");
}

std::string why(const Result<Contract>& contract) { return contract ? "" : contract.error().message; }

TEST(Contract, ReadsRequests) {
  const auto contract = parse(
      R"({"name": "a", "system": "s", "user": "u"}, {"name": "b", "user": "v", "continues": "a", "max_tokens": 3},
         {"name": "c", "random_ids": 5, "random_seed": 2, "ids": [1, 2], "after": ["b"], "oracle": [7]})",
      R"(, "sampling": {"temperature": 0.5, "seed": 9}, "checks": {"gain": 1.5, "prefix_reuse": 0.2}, "max_tokens": 44)");
  ASSERT_TRUE(contract) << contract.error().message;
  ASSERT_EQ(contract->asks.size(), 3u);
  EXPECT_EQ(contract->asks[0].max_tokens, 44);
  EXPECT_EQ(contract->asks[1].max_tokens, 3);
  EXPECT_EQ(contract->asks[1].after, (std::vector<std::string>{"a"}));
  EXPECT_EQ(contract->asks[2].random_count, 5);
  EXPECT_EQ(contract->asks[2].oracle, (std::vector<std::int32_t>{7}));
  EXPECT_EQ(contract->sampling.seed, 9u);
  EXPECT_EQ(contract->checks.least_gain, 1.5);
}

TEST(Contract, ErrorsNameTheField) {
  EXPECT_NE(why(parse_contract("{", "x.json", "")).find("it is not JSON"), std::string::npos);
  EXPECT_NE(why(parse_contract("[]", "x.json", "")).find("JSON object"), std::string::npos);
  EXPECT_NE(why(parse_contract(R"({"contract": 2})", "x.json", "")).find("'contract' must be 1"), std::string::npos);
  EXPECT_NE(why(parse("")).find("'requests'"), std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a"})")).find("request 1: needs one of"), std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "user": "u", "text": "t"})")).find("needs one of"), std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "usr": "u"})")).find("'usr' is not known"), std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "text": "t"}, {"name": "a", "text": "t"})")).find("called 'a'"),
            std::string::npos);
  EXPECT_NE(
      why(parse(R"({"name": "a", "text": "t", "after": ["b"]}, {"name": "b", "text": "t"})")).find("waits for 'b'"),
      std::string::npos);
  EXPECT_NE(
      why(parse(R"({"name": "a", "text": "t"}, {"name": "b", "user": "u", "continues": "a"})")).find("not a chat"),
      std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "ids": [1, -2]})")).find("'ids'"), std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "text": "t", "max_tokens": 0})")).find("'max_tokens'"), std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "user_file": "../x"})")).find("beside the contract"), std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "text": "t"})", R"(, "sampling": {"temperature": -1})")).find("'temperature'"),
            std::string::npos);
  EXPECT_NE(why(parse(R"({"name": "a", "text": "t"})", R"(, "checks": {"speed": 1})")).find("'speed' is not known"),
            std::string::npos);
  EXPECT_EQ(parse_contract("{", "x.json", "").error().code, ErrorCode::corrupt_file);
}

TEST(Contract, ShippedOnesAreGood) {
  int found = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ADZE_TEST_DATA) / "../../bench/contracts")) {
    if (entry.path().extension() != ".json") continue;
    const auto contract = read_contract(entry.path());
    ASSERT_TRUE(contract) << contract.error().message;
    EXPECT_EQ(contract->id, entry.path().stem().string());
    ++found;
  }
  EXPECT_EQ(found, 7);
}

TEST(Contract, LoopsAreSeen) {
  std::vector<std::int32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  EXPECT_EQ(repeated_share(ids), 0);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 5);
  EXPECT_GT(repeated_share(ids), 0.9);
  EXPECT_EQ(repeated_share({1, 1, 1, 1}), 0);  // too short to say
}

TEST(Contract, Slower) {
  const Figures before{.first_token_ms = 10, .prompt_rate = 100, .decode_rate = 50, .plain_rate = 40};
  EXPECT_TRUE(worse(before, {11, 91, 45.5, 1}, 0.1).empty());
  EXPECT_EQ(worse(before, {12, 89, 44, 1}, 0.1).size(), 3u);
  Stored a{
      .contract_id = "x", .contract_digest = "1", .model = "m", .processor = "p", .correct = true, .figures = before};
  Stored b = a;
  EXPECT_TRUE(check_comparable(a, b));
  b.contract_digest = "2";
  EXPECT_FALSE(check_comparable(a, b));
  b = a;
  b.correct = false;
  EXPECT_FALSE(check_comparable(a, b));
  EXPECT_FALSE(read_folder("/nowhere"));
}

}  // namespace
}  // namespace adze::cli::contract
