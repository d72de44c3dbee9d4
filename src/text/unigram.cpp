#include "text/unigram.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "text/unicode.hpp"

namespace adze::text {

namespace {
// SentencePiece's: an unknown character costs this much more than the worst piece.
constexpr double kUnknownPenalty = 10.0;
}  // namespace

void Unigram::create(const TokenizerSpec& spec, const TokenIndex& index) {
  spec_ = &spec;
  byte_tokens_ = find_byte_tokens(spec.types, index);
  std::vector<PrefixSet::Entry> entries;
  double lowest = 0;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = spec.types.empty() ? TokenType::normal : spec.types[id];
    if (type != TokenType::normal && type != TokenType::user_defined) continue;
    if (spec.unk && static_cast<std::size_t>(*spec.unk) == id) continue;
    entries.push_back({spec.tokens[id], static_cast<TokenId>(id)});
    if (type == TokenType::normal) lowest = std::min(lowest, static_cast<double>(spec.scores[id]));
  }
  unknown_score_ = lowest - kUnknownPenalty;
  pieces_.build(std::move(entries));
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& out) const {
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    std::uint32_t from = 0;
    TokenId id = -1;  // -1: an unknown character
  };
  std::vector<Best> best(piece.size() + 1);  // best[i]: the best cut of the first i bytes
  best[0].score = 0;
  for (std::size_t at = 0; at < piece.size();) {
    const std::uint32_t bytes = code_point_at(piece, at).bytes;
    const double base = best[at].score;
    bool whole_character = false;
    pieces_.for_each_prefix(piece.substr(at), [&](TokenId id, std::size_t length) {
      whole_character = whole_character || length == bytes;
      Best& end = best[at + length];
      const double score = base + static_cast<double>(spec_->scores[static_cast<std::size_t>(id)]);
      if (score > end.score) end = {score, static_cast<std::uint32_t>(at), id};
    });
    Best& end = best[at + bytes];
    if (!whole_character && base + unknown_score_ > end.score) {
      end = {base + unknown_score_, static_cast<std::uint32_t>(at), -1};
    }
    at += bytes;
  }
  std::vector<std::size_t> ends;
  for (std::size_t at = piece.size(); at > 0; at = best[at].from) ends.push_back(at);
  bool after_unknown = false;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Best& cut = best[*end];
    if (cut.id >= 0) {
      out.push_back(cut.id);
      after_unknown = false;
    } else {
      append_unknown(piece.substr(cut.from, *end - cut.from), *spec_, byte_tokens_, after_unknown, out);
    }
  }
}

}  // namespace adze::text
