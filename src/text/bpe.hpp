// Byte-pair encoding by ranked merges, over bytes (GPT-2's alphabet) or over characters with byte fallback.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/bpe_cuts.hpp"
#include "text/tokenizer_index.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

// GPT-2 spells each byte as one printable character: itself where it is printable Latin-1, else U+0100 and up in order.
char32_t byte_to_alphabet(std::uint8_t byte);
// -1 for a character outside the alphabet.
int alphabet_to_byte(char32_t character);

// Buffers of one encode, reused between its pieces.
struct MergeScratch {
  struct Node {
    std::int32_t previous, next;
    TokenId id;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;  // index of the left node
    TokenId result;
  };
  std::vector<std::uint32_t> ranks;
  std::vector<TokenId> results;
  std::vector<Node> nodes;
  std::vector<Candidate> heap;
  std::string text;
};

// Merges ids[from..] until no neighbours merge: always the pair of lowest rank, the leftmost of equals.
// Time n log n, n squared only below a few dozen symbols where that is faster.
void merge_by_rank(const MergeTable& merges, std::vector<TokenId>& ids, std::size_t from, MergeScratch& scratch);

// The ids of <0x00> ... <0xFF>; -1 where the vocabulary has none.
using ByteTokens = std::array<TokenId, 256>;
ByteTokens find_byte_tokens(std::span<const TokenType> types, const TokenIndex& index);

// Both are immutable after create; the spec and the index must outlive them.
class ByteBpe {
 public:
  // Errors: those of MergeTable::build.
  Status create(const TokenizerSpec& spec, const TokenIndex& index);
  // A byte that has no token becomes `unk`, or nothing when there is none.
  void encode(std::string_view piece, std::vector<TokenId>& out, MergeScratch& scratch) const;

 private:
  const TokenizerSpec* spec_ = nullptr;
  const TokenIndex* index_ = nullptr;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_{};
};

class CharacterBpe {
 public:
  Status create(const TokenizerSpec& spec, const TokenIndex& index);
  // A character that has no token becomes its bytes' tokens if they all exist, else `unk`, else nothing.
  void encode(std::string_view piece, std::vector<TokenId>& out, MergeScratch& scratch) const;

 private:
  const TokenizerSpec* spec_ = nullptr;
  const TokenIndex* index_ = nullptr;
  MergeTable merges_;
  WordCuts cuts_;
  ByteTokens byte_tokens_{};
};

// Appends what stands for a character that is not in the vocabulary. fuse: an `unk` right before it covers it.
void append_unknown(std::string_view character, const TokenizerSpec& spec, const ByteTokens& byte_tokens,
                    bool& after_unknown, std::vector<TokenId>& out);

}  // namespace adze::text
