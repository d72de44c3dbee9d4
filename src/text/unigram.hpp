// SentencePiece's unigram model: of all ways to cut the text into pieces, the one with the highest sum of scores
// (Viterbi).
#pragma once

#include <string_view>
#include <vector>

#include "text/bpe.hpp"
#include "text/tokenizer_index.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

// Immutable after create; the spec and the index must outlive it.
class Unigram {
 public:
  void create(const TokenizerSpec& spec, const TokenIndex& index);
  // `piece` is valid UTF-8 with spaces as U+2581. Neighbouring unknown characters are one unknown.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  const TokenizerSpec* spec_ = nullptr;
  ByteTokens byte_tokens_{};
  PrefixSet pieces_;
  double unknown_score_ = 0;
};

}  // namespace adze::text
