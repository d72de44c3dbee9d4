// How tests read the oracle's vector files and compare a tokenizer with them. Test code only.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "text/detokenizer.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_json.hpp"

namespace adze::text::vectors {

namespace fs = std::filesystem;
using simdjson::dom::array;
using simdjson::dom::element;

inline constexpr std::uint64_t kMaxFile = 64u << 20;

inline fs::path data_dir() { return fs::path(ADZE_TEST_DATA) / "tokenizers"; }

inline TokenizerSpec load_spec(const fs::path& path) {
  auto text = read_file(path, kMaxFile);
  EXPECT_TRUE(text) << path;
  auto spec = spec_from_tokenizer_json(*text);
  EXPECT_TRUE(spec) << path << ": " << spec.error().message;
  return std::move(*spec);
}

inline std::shared_ptr<const Tokenizer> make(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::create(std::move(spec));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

inline std::vector<TokenId> ids_of(element value) {
  std::vector<TokenId> ids;
  for (const element id : array(value)) ids.push_back(static_cast<TokenId>(int64_t(id)));
  return ids;
}

inline std::string text_of(element value) { return std::string(std::string_view(value)); }

inline std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

inline std::string streamed(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<TokenId>& ids,
                            bool special) {
  StreamDecoder stream(tokenizer, {.show_special = special}, false);
  std::string out;
  for (const TokenId id : ids) out += stream.push(id);
  return out + stream.flush();
}

inline void check_text(const std::shared_ptr<const Tokenizer>& tokenizer, element vector) {
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

inline void check_all(const std::shared_ptr<const Tokenizer>& tokenizer, const fs::path& path) {
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

}  // namespace adze::text::vectors
