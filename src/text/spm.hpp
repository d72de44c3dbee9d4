// SentencePiece's BPE: characters are merged while the joined text is a piece, best score first. Unlike ranked merges,
// any two neighbours whose text joins to a piece may merge.
#pragma once

#include <string_view>
#include <vector>

#include "text/bpe.hpp"
#include "text/tokenizer_index.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

// Immutable after create; the spec and the index must outlive it.
class SentencePieceBpe {
 public:
  void create(const TokenizerSpec& spec, const TokenIndex& index);
  // `piece` is valid UTF-8 with spaces as U+2581.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  bool is_mergeable(TokenId id) const;
  const TokenizerSpec* spec_ = nullptr;
  const TokenIndex* index_ = nullptr;
  ByteTokens byte_tokens_{};
  std::size_t longest_ = 0;  // bytes of the longest token
};

}  // namespace adze::text
