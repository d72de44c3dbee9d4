// Text to token ids and back, exactly as the model's own tokenizer does it, in time that grows linearly with the text.
//
// A Tokenizer is immutable: any number of threads may use one. Text that is not UTF-8 is read with each maximal invalid
// part as U+FFFD, as Python's errors="replace" does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

struct EncodeOptions {
  // true: the text of a special token becomes that token. false: it is plain text; user-defined tokens that are not
  // special ("<think>" in some vocabularies, runs of spaces) still match, as in Hugging Face's encode_special_tokens.
  // Segments decide for themselves and ignore this.
  bool parse_special = false;
  bool add_bos = false;  // put BOS first, unless the ids begin with it already or the model has none
  bool add_eos = false;  // the same for EOS at the end
};

struct DecodeOptions {
  bool show_special = false;  // false: control and other special tokens give nothing
};

class Tokenizer {
 public:
  // Errors: corrupt_file when the spec contradicts itself (the message names the field), unsupported_feature for a
  // pre-tokenizer or a pattern that Adze does not know, limit_exceeded (kMaxVocabulary).
  static Result<std::shared_ptr<const Tokenizer>> create(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Errors: limit_exceeded for a text over kTokenizerMaxTextBytes, or when a pattern of the model's pre-tokenizer needs
  // more steps than kPatternStepsPerByte allows (none of the built-in ones does).
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  // The segments of a rendered chat template. Special tokens are matched only where all of their text is literal. Other
  // text is plain, user-defined tokens that look like markup ("<think>", "<|tool_call>") included; those that are mere
  // text ("\n\n", "▁▁") match everywhere. Everything else runs over the joined text: a border between two segments
  // cuts nothing, so the ids are those of the joined text whenever no data segment holds such a token.
  Result<std::vector<TokenId>> encode(std::span<const Segment> segments, EncodeOptions options = {}) const;

  // UTF-8; each maximal invalid part of the tokens' bytes becomes U+FFFD. Ids outside the vocabulary give nothing.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;
  // Appends the bytes of one token, which may be a part of a character. U+2581 is a space. See detokenizer.hpp for
  // streams.
  void append_bytes(TokenId id, std::string& out, DecodeOptions options = {}) const;

  std::int32_t size() const;  // ids are [0, size)
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  std::string_view token_text(TokenId id) const;  // as the vocabulary spells it; id must be contained
  std::optional<TokenId> token_to_id(std::string_view text) const;
  TokenType type(TokenId id) const;
  bool is_special(TokenId id) const;  // decode hides it unless show_special
  bool is_control(TokenId id) const { return type(id) == TokenType::control; }
  bool is_end_of_generation(TokenId id) const;  // an answer ends at it
  std::span<const TokenId> end_of_generation() const;

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> eot() const;
  std::optional<TokenId> unk() const;
  std::optional<TokenId> pad() const;
  bool adds_bos() const;  // what the model's own tokenizer does; encode itself only follows its options
  bool adds_eos() const;
  // Decode drops the first space of a text (SentencePiece models that add one).
  bool strips_leading_space() const;

  TokenizerKind kind() const;
  std::string_view pre_tokenizer() const;  // GGUF's name, or empty
  // Of everything that decides ids: part of every prefix-cache key.
  Digest fingerprint() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace adze::text
