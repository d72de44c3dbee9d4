// SentencePiece's BPE: characters are merged while the joined text is a piece, best score first. Unlike ranked merges,
// any two neighbours whose text joins to a piece may merge.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/bpe.hpp"
#include "text/tokenizer_index.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

// Buffers of one encode.
struct SentencePieceScratch {
  struct Symbol {
    std::int32_t previous, next;
    std::uint32_t begin, size;  // in the word; size 0: swallowed
    TokenId id;                 // -1: not a token
  };
  struct Candidate {
    float score;
    std::int32_t left;
    std::uint32_t size;  // of both symbols: tells whether they are still the same
    TokenId result;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

// Immutable after create; the spec and the index must outlive it.
class SentencePieceBpe {
 public:
  void create(const TokenizerSpec& spec, const TokenIndex& index);
  // `piece` is valid UTF-8 with spaces as U+2581.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  bool is_mergeable(TokenId id) const;
  void encode_word(std::string_view word, std::vector<TokenId>& out, SentencePieceScratch& scratch,
                   bool& after_unknown) const;
  const TokenizerSpec* spec_ = nullptr;
  const TokenIndex* index_ = nullptr;
  WordCuts cuts_;
  ByteTokens byte_tokens_{};
  std::size_t longest_ = 0;  // bytes of the longest token
};

}  // namespace adze::text
