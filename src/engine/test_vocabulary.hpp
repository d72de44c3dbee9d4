// A vocabulary for tests: the 256 bytes (ids 0 to 255), then pieces of the test's choosing, then control tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"
#include "text/unicode.hpp"

namespace adze::engine {

// How GPT-2 spells a byte: printable ones as themselves, the others from U+0100 on.
inline std::string spell(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    const auto printable = [](int x) { return (x >= 33 && x <= 126) || (x >= 161 && x <= 172) || x >= 174; };
    char32_t code = b;
    if (!printable(b)) {
      code = 256;
      for (int x = 0; x < b; ++x) code += printable(x) ? 0 : 1;
    }
    text::append_utf8(code, out);
  }
  return out;
}

constexpr std::int32_t kFirstPiece = 256;

// bos, eos and eot: "<s>", "</s>", "<|im_end|>" when they are among the controls.
inline std::shared_ptr<const text::Tokenizer> test_vocabulary(const std::vector<std::string>& pieces,
                                                              const std::vector<std::string>& controls = {
                                                                  "<s>", "</s>", "<|im_start|>", "<|im_end|>"}) {
  auto strings = std::make_shared<std::vector<std::string>>();
  for (int b = 0; b < 256; ++b) strings->push_back(spell(std::string(1, static_cast<char>(b))));
  for (const std::string& piece : pieces) strings->push_back(spell(piece));
  text::TokenizerSpec spec;
  spec.kind = text::TokenizerKind::byte_bpe;
  spec.pre_tokenizer = "gpt-2";
  spec.types.assign(strings->size(), text::TokenType::normal);
  for (const std::string& control : controls) {
    const auto id = static_cast<text::TokenId>(strings->size());
    if (control == "<s>") spec.bos = id;
    if (control == "</s>") spec.eos = id;
    if (control == "<|im_end|>") spec.eot = id;
    strings->push_back(control);
    spec.types.push_back(text::TokenType::control);
  }
  for (const std::string& s : *strings) spec.tokens.push_back(s);
  spec.storage = strings;
  return text::Tokenizer::create(std::move(spec)).value();
}

}  // namespace adze::engine
