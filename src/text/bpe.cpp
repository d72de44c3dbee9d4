#include "text/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.hpp"

namespace adze::text {

namespace {

constexpr bool prints_as_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kAlphabet = [] {
  std::array<char32_t, 256> table{};
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) table[b] = prints_as_itself(b) ? b : next++;
  return table;
}();

constexpr auto kAlphabetInverse = [] {
  std::array<std::int16_t, 0x144> table{};
  table.fill(-1);
  for (unsigned b = 0; b < 256; ++b) table[kAlphabet[b]] = static_cast<std::int16_t>(b);
  return table;
}();

// Below this many symbols scanning an array for the best pair beats a heap; 16 to 64 are within 5 % of each other.
constexpr std::size_t kScanSymbols = 40;

void merge_by_scan(const MergeTable& merges, std::vector<TokenId>& ids, std::size_t from, MergeScratch& scratch) {
  auto& ranks = scratch.ranks;  // ranks[i], results[i]: the merge of symbols i and i + 1
  auto& results = scratch.results;
  std::size_t count = ids.size() - from;
  TokenId* symbols = ids.data() + from;
  ranks.resize(count);
  results.resize(count);
  const auto look_up = [&](std::size_t i) {
    const Merge merge = i + 1 < count ? merges.find(symbols[i], symbols[i + 1]) : Merge{};
    ranks[i] = merge.rank;
    results[i] = merge.result;
  };
  for (std::size_t i = 0; i < count; ++i) look_up(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == Merge::kNoRank) break;
    symbols[best] = results[best];
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.resize(from + count);
}

void merge_by_heap(const MergeTable& merges, std::vector<TokenId>& ids, std::size_t from, MergeScratch& scratch) {
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  nodes.clear();
  heap.clear();
  const auto count = static_cast<std::int32_t>(ids.size() - from);
  for (std::int32_t i = 0; i < count; ++i) {
    nodes.push_back({i - 1, i + 1 < count ? i + 1 : -1, ids[from + static_cast<std::size_t>(i)]});
  }
  const auto node = [&](std::int32_t i) -> MergeScratch::Node& { return nodes[static_cast<std::size_t>(i)]; };
  const auto later = [](const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || node(left).next < 0) return false;
    const Merge merge = merges.find(node(left).id, node(node(left).next).id);
    if (!merge) return false;
    heap.push_back({merge.rank, left, merge.result});
    return true;
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) offer(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const MergeScratch::Candidate best = heap.back();
    heap.pop_back();
    auto& left = node(best.left);
    if (left.id < 0 || left.next < 0) continue;  // swallowed meanwhile
    auto& right = node(left.next);
    if (merges.find(left.id, right.id).rank != best.rank) continue;  // one of the two changed meanwhile
    left.id = best.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) node(left.next).previous = best.left;
    if (offer(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (offer(best.left)) std::push_heap(heap.begin(), heap.end(), later);
  }
  std::size_t out = from;
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = node(i).next) ids[out++] = node(i).id;
  ids.resize(out);
}

TokenType type_of(const TokenizerSpec& spec, TokenId id) {
  return spec.types.empty() ? TokenType::normal : spec.types[static_cast<std::size_t>(id)];
}

}  // namespace

char32_t byte_to_alphabet(std::uint8_t byte) { return kAlphabet[byte]; }

int alphabet_to_byte(char32_t character) {
  return character < kAlphabetInverse.size() ? kAlphabetInverse[character] : -1;
}

void merge_by_rank(const MergeTable& merges, std::vector<TokenId>& ids, std::size_t from, MergeScratch& scratch) {
  if (ids.size() - from <= kScanSymbols) {
    merge_by_scan(merges, ids, from, scratch);
  } else {
    merge_by_heap(merges, ids, from, scratch);
  }
}

ByteTokens find_byte_tokens(std::span<const TokenType> types, const TokenIndex& index) {
  ByteTokens tokens;
  for (unsigned b = 0; b < 256; ++b) {
    const auto id = index.find(fmt::format("<0x{:02X}>", b));
    const bool usable = id && (types.empty() || types[static_cast<std::size_t>(*id)] == TokenType::byte);
    tokens[b] = usable ? *id : -1;
  }
  return tokens;
}

void append_unknown(std::string_view character, const TokenizerSpec& spec, const ByteTokens& byte_tokens,
                    bool& after_unknown, std::vector<TokenId>& out) {
  const auto token_of = [&](char c) { return byte_tokens[static_cast<unsigned char>(c)]; };
  if (spec.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) { return token_of(c) >= 0; })) {
    for (const char c : character) out.push_back(token_of(c));
    after_unknown = false;
  } else if (spec.unk && spec.unknown_gives_unk) {
    if (!(spec.fuse_unknown && after_unknown)) out.push_back(*spec.unk);
    after_unknown = true;
  }
}

Status ByteBpe::create(const TokenizerSpec& spec, const TokenIndex& index) {
  spec_ = &spec;
  index_ = &index;
  std::string spelled;
  for (unsigned b = 0; b < 256; ++b) {
    spelled.clear();
    append_utf8(kAlphabet[b], spelled);
    byte_ids_[b] = index.find(spelled).value_or(-1);
  }
  return merges_.build(spec.merges, spec.tokens, index);
}

void ByteBpe::encode(std::string_view piece, std::vector<TokenId>& out, MergeScratch& scratch) const {
  if (spec_->ignore_merges) {
    scratch.text.clear();
    for (const char c : piece) append_utf8(kAlphabet[static_cast<unsigned char>(c)], scratch.text);
    const auto whole = index_->find(scratch.text);
    if (whole && type_of(*spec_, *whole) == TokenType::normal) {
      out.push_back(*whole);
      return;
    }
  }
  static constexpr ByteTokens no_bytes = [] {
    ByteTokens none{};
    none.fill(-1);
    return none;
  }();
  const std::size_t from = out.size();
  bool after_unknown = false;
  for (const char c : piece) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) {
      out.push_back(id);
      after_unknown = false;
    } else {
      append_unknown(std::string_view(&c, 1), *spec_, no_bytes, after_unknown, out);
    }
  }
  merge_by_rank(merges_, out, from, scratch);
}

Status CharacterBpe::create(const TokenizerSpec& spec, const TokenIndex& index) {
  spec_ = &spec;
  index_ = &index;
  byte_tokens_ = find_byte_tokens(spec.types, index);
  cuts_.create(spec);
  return merges_.build(spec.merges, spec.tokens, index);
}

void CharacterBpe::encode(std::string_view piece, std::vector<TokenId>& out, MergeScratch& scratch) const {
  if (spec_->ignore_merges) {
    const auto whole = index_->find(piece);
    if (whole && type_of(*spec_, *whole) == TokenType::normal) {
      out.push_back(*whole);
      return;
    }
  }
  bool after_unknown = false;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = cuts_.next(piece, at);
    const std::size_t from = out.size();
    while (at < end) {
      const std::string_view character = piece.substr(at, code_point_at(piece, at).bytes);
      at += character.size();
      if (const auto id = index_->find(character)) {
        out.push_back(*id);
        after_unknown = false;
      } else {
        append_unknown(character, *spec_, byte_tokens_, after_unknown, out);
      }
    }
    merge_by_rank(merges_, out, from, scratch);
  }
}

}  // namespace adze::text
