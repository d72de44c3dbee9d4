// What a tokenizer is, in neutral words: filled from GGUF metadata (model/vocabulary.hpp) or from a Hugging Face
// tokenizer.json (text/tokenizer_json.hpp), and turned into something that runs by Tokenizer::create.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adze::text {

using TokenId = std::int32_t;

enum class TokenizerKind : std::uint8_t {
  // Bytes spelled as printable characters (GPT-2's alphabet), pre-tokenised, merged by rank. GGUF: "gpt2".
  byte_bpe,
  // Characters over text whose spaces are U+2581, merged by the score of the result. GGUF: "llama".
  sentencepiece_bpe,
  // Characters over text whose spaces are U+2581, merged by rank; bytes <0xXX> for unknown characters. GGUF: "gemma4".
  character_bpe,
  // The most probable split by piece scores (Viterbi). GGUF: "t5".
  unigram,
};

// With GGUF's numbers.
enum class TokenType : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// A token that is matched in the raw text before anything else. The longest one wins at each place.
struct AddedToken {
  TokenId id = 0;
  bool special = true;       // matched only where special tokens are parsed
  bool single_word = false;  // only when no letter, digit or underscore touches it
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space after it
  bool normalized = false;   // matched in the normalised text, after the others
};

// One step of pre-tokenisation: cuts each piece of the step before.
struct SplitStage {
  enum class Cut : std::uint8_t {
    matches,             // each match is a piece, and so is each gap between matches
    gaps,                // matches are dropped, gaps remain
    merge_with_previous  // a match ends the piece that it follows
  };
  std::string pattern;  // in the language of text/pattern.hpp
  Cut cut = Cut::matches;
  bool invert = false;  // the gaps count as the matches
};

// Every string_view points into bytes that `storage` keeps alive: a mapped GGUF's vocabulary is not copied.
struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::byte_bpe;
  std::shared_ptr<const void> storage;

  std::vector<std::string_view> tokens;  // by id; byte_bpe: in GPT-2's printable alphabet
  std::vector<float> scores;             // by id; sentencepiece_bpe and unigram
  std::vector<TokenType> types;          // by id; empty: all normal
  // "left right", best first; byte_bpe and character_bpe. The first space after the first byte parts the two.
  std::vector<std::string_view> merges;

  // byte_bpe: either a name in GGUF's words ("llama-bpe", "qwen2", ...; see text/pretokenizer.hpp) or the stages.
  std::string pre_tokenizer;
  std::vector<SplitStage> stages;
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say

  // Absent: control, unknown and user_defined tokens of `types` are matched in the text.
  std::optional<std::vector<AddedToken>> added_tokens;

  std::optional<TokenId> bos, eos, eot, unk, pad, sep, mask;
  std::vector<TokenId> end_of_generation;  // further tokens that end an answer; eos and eot are always among them
  bool add_bos = false;                    // what the model's own tokenizer does by default
  bool add_eos = false;
  bool add_space_prefix = false;          // sentencepiece_bpe, unigram, byte_bpe: a space before the text
  bool prefix_every_section = false;      // ... and again after every added token, not only at the start
  bool prefix_if_missing = false;         // ... but not where a space stands there already
  bool remove_extra_whitespaces = false;  // sentencepiece_bpe, unigram: runs of spaces become one, ends are trimmed
  bool byte_fallback = true;              // unknown characters become <0xXX> tokens where the vocabulary has them
  bool unknown_gives_unk = true;          // false: characters without tokens give nothing
  bool fuse_unknown = true;               // neighbouring unknown characters give one `unk`
  bool strip_leading_space = false;       // decode drops one space at the start of the text
  bool nfc = false;                       // text is put into Unicode's normal form C first
};

}  // namespace adze::text
