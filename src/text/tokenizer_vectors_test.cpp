// Every vector of the oracle sets, exactly: from tokenizer.json, and from a neutral spec that names its pre-tokenizer.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "text/detokenizer.hpp"
#include "text/pretokenizer.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_json.hpp"

namespace adze::text {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::array;
using simdjson::dom::element;

constexpr std::uint64_t kMaxFile = 64u << 20;

fs::path data_dir() { return fs::path(ADZE_TEST_DATA) / "tokenizers"; }

TokenizerSpec load_spec(const fs::path& path) {
  auto text = read_file(path, kMaxFile);
  EXPECT_TRUE(text) << path;
  auto spec = spec_from_tokenizer_json(*text);
  EXPECT_TRUE(spec) << path << ": " << spec.error().message;
  return std::move(*spec);
}

std::shared_ptr<const Tokenizer> make(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::create(std::move(spec));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

std::vector<TokenId> ids_of(element value) {
  std::vector<TokenId> ids;
  for (const element id : array(value)) ids.push_back(static_cast<TokenId>(int64_t(id)));
  return ids;
}

std::string text_of(element value) { return std::string(std::string_view(value)); }

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string streamed(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<TokenId>& ids, bool special) {
  StreamDecoder stream(tokenizer, {.show_special = special}, false);
  std::string out;
  for (const TokenId id : ids) out += stream.push(id);
  return out + stream.flush();
}

void check_text(const std::shared_ptr<const Tokenizer>& tokenizer, element vector) {
  const std::string text = text_of(vector["text"]);
  const std::vector<TokenId> ids = ids_of(vector["ids"]);
  EXPECT_EQ(tokenizer->encode(text, {.parse_special = true}).value(), ids) << text;
  element plain;
  const auto plain_ids = vector["ids_no_special"].get(plain) == simdjson::SUCCESS ? ids_of(plain) : ids;
  EXPECT_EQ(tokenizer->encode(text).value(), plain_ids) << text;
  element decoded;
  const std::string back = vector["decoded"].get(decoded) == simdjson::SUCCESS ? text_of(decoded) : text;
  EXPECT_EQ(tokenizer->decode(ids, {.show_special = true}), back);
  if (back.find("\xEF\xBF\xBD") == std::string::npos) {
    EXPECT_EQ(streamed(tokenizer, ids, true), back);
  }
  const std::vector<Segment> literal = {{text, true}};
  EXPECT_EQ(tokenizer->encode(literal).value(), ids) << text;
}

void check_all(const std::shared_ptr<const Tokenizer>& tokenizer, const fs::path& path) {
  simdjson::dom::parser parser;
  element root;
  ASSERT_EQ(parser.load(path.string()).get(root), simdjson::SUCCESS) << path;
  std::size_t count = 0;
  for (const element vector : array(root["vectors"])) {
    check_text(tokenizer, vector);
    ++count;
  }
  EXPECT_GE(count, 400u);
  for (const element bad : array(root["invalid_utf8"]["vectors"])) {
    const std::string bytes = from_hex(bad["hex"]);
    EXPECT_EQ(tokenizer->encode(bytes, {.parse_special = true}).value(), ids_of(bad["ids"])) << text_of(bad["hex"]);
  }
  for (const element row : array(root["decode"])) {
    const auto ids = ids_of(row["ids"]);
    EXPECT_EQ(tokenizer->decode(ids, {.show_special = true}), text_of(row["decoded"]));
    EXPECT_EQ(tokenizer->decode(ids), text_of(row["decoded_skip_special"]));
  }
}

class Synthetic : public testing::TestWithParam<const char*> {};
class SyntheticByName : public Synthetic {};  // the byte-level ones, whose pre-tokenizer GGUF names

TEST_P(Synthetic, FromTokenizerJson) {
  const std::string name = GetParam();
  const fs::path dir = data_dir() / "synthetic";
  check_all(make(load_spec(dir / (name + ".tokenizer.json"))), dir / (name + ".vectors.json"));
}

TEST_P(SyntheticByName, FromNamedPreTokenizer) {
  const std::string name = GetParam();
  const fs::path dir = data_dir() / "synthetic";
  TokenizerSpec spec = load_spec(dir / (name + ".tokenizer.json"));
  spec.stages.clear();
  spec.pre_tokenizer = name;
  check_all(make(std::move(spec)), dir / (name + ".vectors.json"));
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

#define ADZE_BYTE_LEVEL \
  "deepseek-coder", "deepseek-v3", "gpt-4o", "gpt2", "llama-bpe", "qwen2", "qwen35", "smollm", "tekken"
INSTANTIATE_TEST_SUITE_P(All, Synthetic, testing::Values("gemma3", "gemma4", ADZE_BYTE_LEVEL), test_name);
INSTANTIATE_TEST_SUITE_P(All, SyntheticByName, testing::Values(ADZE_BYTE_LEVEL), test_name);

TEST(RealVectors, SmolLm2) {
  const fs::path dir = data_dir() / "real";
  check_all(make(load_spec(dir / "smollm2.tokenizer.json")), dir / "smollm2.vectors.json");
}

}  // namespace
}  // namespace adze::text
