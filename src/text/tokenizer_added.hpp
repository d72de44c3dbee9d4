// Finds added tokens (control tokens, user-defined tokens) in raw text, before anything else looks at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/tokenizer_index.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

// A stretch of text between added tokens, or one added token.
struct Section {
  std::string_view text;
  TokenId id = -1;  // -1: text
};

// Bytes [begin, end) of a joined text that are literal.
struct LiteralRange {
  std::size_t begin, end;
};

// Whether a user-defined token is part of a chat format, so that it must not be made from a user's text: <|name|>,
// <name|>, [NAME], <tool_call>, <think>. Runs of white space, letters and HTML tags are not.
bool is_markup(std::string_view token);

// Immutable; the spec must outlive it.
class AddedTokens {
 public:
  // Errors: corrupt_file (an id out of range).
  Status create(const TokenizerSpec& spec);

  // All tokens match. / The text of special tokens is skipped over, as Hugging Face's encode_special_tokens does.
  void split_all(std::string_view text, std::vector<Section>& out) const;
  void split_plain(std::string_view text, std::vector<Section>& out) const;
  // Special tokens and markup match only inside one literal range (sorted, not touching); mere text matches anywhere.
  void split_segments(std::string_view text, std::span<const LiteralRange> literals, std::vector<Section>& out) const;

  bool is_special(TokenId id) const { return special_[static_cast<std::size_t>(id)]; }

 private:
  enum class Mode : std::uint8_t { all, plain, segments };
  struct Found {
    std::size_t begin, end;  // of the token's text, before stripping
    std::uint32_t index;     // into added_
  };
  void split(Mode mode, std::string_view text, std::span<const LiteralRange> literals, std::vector<Section>& out) const;
  void split_with(const PrefixSet& set, Mode mode, std::string_view text, std::string_view whole,
                  std::span<const LiteralRange> literals, std::vector<Section>& out) const;

  std::vector<AddedToken> added_;
  std::vector<bool> markup_;   // by index into added_
  std::vector<bool> special_;  // by id
  PrefixSet raw_, normalized_;
};

}  // namespace adze::text
