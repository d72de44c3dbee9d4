#include "convert/vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/pretokenizer.hpp"
#include "text/unicode.hpp"

namespace adze::convert {
namespace {

using text::TokenId;
using text::TokenizerKind;
using text::TokenizerSpec;
using text::TokenType;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr float kUnranked = -1000.0f;  // the score of tokens that no merge makes

std::string key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

tl::unexpected<Error> refuse(std::string what) {
  return fail(ErrorCode::unsupported_feature, fmt::format("the tokenizer {}, which a GGUF file cannot say", what),
              "run the folder as it is: Adze reads tokenizer.json itself");
}

// Token texts: added ones are matched in the raw text, where a space is a space.
std::vector<std::string> token_texts(const TokenizerSpec& spec, std::int64_t size) {
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(size));
  for (std::size_t id = 0; id < static_cast<std::size_t>(size); ++id) {
    const bool there = id < spec.tokens.size() && spec.types[id] != TokenType::unused;
    std::string token = there ? std::string(spec.tokens[id]) : fmt::format("[PAD{}]", id);
    if (there && spec.types[id] == TokenType::user_defined) {
      for (std::size_t at = token.find(kSpaceMark); at != token.npos; at = token.find(kSpaceMark, at))
        token.replace(at, kSpaceMark.size(), " ");
    }
    texts.push_back(std::move(token));
  }
  return texts;
}

std::vector<std::int32_t> token_types(const TokenizerSpec& spec, std::int64_t size) {
  std::vector<std::int32_t> types(static_cast<std::size_t>(size), static_cast<std::int32_t>(TokenType::unused));
  for (std::size_t id = 0; id < spec.types.size(); ++id) types[id] = static_cast<std::int32_t>(spec.types[id]);
  return types;
}

// SentencePiece merges the pair whose token has the best score. tokenizer.json has the same order as a list, sorted by
// that score: so the place of the first merge that makes a token is as good a score as the one that was lost. Nothing
// where the list is not sorted like that: merges that make one token must stand together.
std::optional<std::vector<float>> scores_from_merges(const TokenizerSpec& spec, std::int64_t size) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) ids.emplace(spec.tokens[id], id);
  std::vector<float> scores(static_cast<std::size_t>(size), kUnranked);
  std::vector<bool> ranked(scores.size(), false);
  std::size_t last = scores.size();
  float rank = 0.0f;
  for (const std::string_view merge : spec.merges) {
    std::string token(merge);
    token.erase(token.find(' ', 1), 1);
    const auto found = ids.find(token);
    if (found == ids.end()) continue;
    if (found->second == last) continue;
    last = found->second;
    if (ranked[last]) return std::nullopt;
    ranked[last] = true;
    scores[last] = rank;
    rank -= 1.0f;
  }
  for (std::size_t id = 0; id < spec.types.size(); ++id) {
    if (spec.types[id] != TokenType::normal) scores[id] = kUnranked;
  }
  return scores;
}

// SentencePiece joins whatever two pieces of text make a token, merges by rank only pairs that are listed. So the ids
// are the same only where the list has every way to make each token. Gives the first merge that it lacks, "left right".
std::optional<std::string> missing_merge(const TokenizerSpec& spec) {
  const std::unordered_set<std::string_view> merges(spec.merges.begin(), spec.merges.end());
  std::unordered_set<std::string_view> tokens;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.types[id] == TokenType::normal && !spec.tokens[id].empty()) tokens.insert(spec.tokens[id]);
  }
  // A character that is no token still is a piece of text.
  const auto is_piece = [&](std::string_view text) {
    return text::code_point_at(text, 0).bytes == text.size() || tokens.contains(text);
  };
  std::string merge;
  for (const std::string_view token : tokens) {
    for (std::size_t at = text::code_point_at(token, 0).bytes; at < token.size();
         at += text::code_point_at(token, at).bytes) {
      const std::string_view left = token.substr(0, at), right = token.substr(at);
      if (!is_piece(left) || !is_piece(right)) continue;
      merge.assign(left).append(1, ' ').append(right);
      if (!merges.contains(merge)) return merge;
    }
  }
  return std::nullopt;
}

void add_merges(const TokenizerSpec& spec, format::GgufWriter& out) {
  out.add_strings(key("merges"), std::vector<std::string>(spec.merges.begin(), spec.merges.end()));
}

Status add_byte_bpe(const TokenizerSpec& spec, std::int64_t size, format::GgufWriter& out) {
  std::string name = spec.pre_tokenizer;
  if (name.empty()) name = text::name_of_pre_tokenizer(spec.stages, spec.ignore_merges);
  if (name.empty()) {
    return refuse(fmt::format("cuts text by patterns of its own (\"{}\" ...)",
                              spec.stages.empty() ? "" : spec.stages.front().pattern.substr(0, 60)));
  }
  if (spec.add_space_prefix) return refuse("puts a space before every text");
  out.add_string(key("model"), "gpt2");
  out.add_string(key("pre"), name);
  out.add_strings(key("tokens"), token_texts(spec, size));
  out.add_i32s(key("token_type"), token_types(spec, size));
  add_merges(spec, out);
  return {};
}

Status add_character_bpe(const TokenizerSpec& spec, std::int64_t size, bool gemma4, format::GgufWriter& out) {
  std::vector<float> scores(static_cast<std::size_t>(size), kUnranked);
  if (!gemma4) {
    auto ranked = scores_from_merges(spec, size);
    if (!ranked) return refuse("has merges in an order that no scores give");
    scores = std::move(*ranked);
    if (const auto missing = missing_merge(spec)) return refuse(fmt::format("never merges \"{}\"", *missing));
  }
  out.add_string(key("model"), gemma4 ? "gemma4" : "llama");
  if (!gemma4) out.add_string(key("pre"), "default");
  out.add_strings(key("tokens"), token_texts(spec, size));
  out.add_f32s(key("scores"), scores);
  std::vector<std::int32_t> types = token_types(spec, size);
  if (spec.unk && types[static_cast<std::size_t>(*spec.unk)] == static_cast<std::int32_t>(TokenType::normal))
    types[static_cast<std::size_t>(*spec.unk)] = static_cast<std::int32_t>(TokenType::unknown);
  out.add_i32s(key("token_type"), types);
  if (gemma4) add_merges(spec, out);
  out.add_bool(key("add_space_prefix"), spec.add_space_prefix);
  return {};
}

// Of several tokens that end an answer GGUF can name three. Gives those that it cannot, by their text.
std::vector<std::string> add_special_ids(const TokenizerSpec& spec, format::GgufWriter& out) {
  const auto add = [&](std::string_view name, std::optional<TokenId> id) {
    if (id) out.add_u32(key(name), static_cast<std::uint32_t>(*id));
  };
  std::vector<TokenId> further;
  for (const TokenId id : spec.end_of_generation) {
    if (id != spec.eos && id != spec.eot) further.push_back(id);
  }
  std::optional<TokenId> eot = spec.eot, eom;
  std::vector<std::string> nameless;
  for (const TokenId id : further) {
    if (!eot) {
      eot = id;
    } else if (!eom) {
      eom = id;
    } else {
      nameless.emplace_back(spec.tokens[static_cast<std::size_t>(id)]);
    }
  }
  add("bos_token_id", spec.bos);
  add("eos_token_id", spec.eos);
  add("eot_token_id", eot);
  add("eom_token_id", eom);
  add("unknown_token_id", spec.unk);
  add("seperator_token_id", spec.sep);
  add("padding_token_id", spec.pad);
  add("mask_token_id", spec.mask);
  out.add_bool(key("add_bos_token"), spec.add_bos);
  out.add_bool(key("add_eos_token"), spec.add_eos);
  return nameless;
}

}  // namespace

Result<std::vector<std::string>> add_vocabulary(const TokenizerSpec& spec, std::int64_t size,
                                                std::string_view architecture, format::GgufWriter& out) {
  if (std::ssize(spec.tokens) > size) {
    return fail(
        ErrorCode::corrupt_file,
        fmt::format("tokenizer.json has {} tokens, but the model's embedding only {} rows", spec.tokens.size(), size),
        "the files of the folder do not belong together: get it again");
  }
  switch (spec.kind) {
    case TokenizerKind::byte_bpe: ADZE_TRY_STATUS(add_byte_bpe(spec, size, out)); break;
    case TokenizerKind::character_bpe:
      ADZE_TRY_STATUS(add_character_bpe(spec, size, architecture == "gemma4", out));
      break;
    case TokenizerKind::sentencepiece_bpe: return refuse("merges by scores without listing them");
    case TokenizerKind::unigram: return refuse("is a unigram model");
  }
  return add_special_ids(spec, out);
}

}  // namespace adze::convert
