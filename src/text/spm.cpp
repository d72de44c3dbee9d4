#include "text/spm.hpp"

#include <algorithm>
#include <cstdint>

#include "text/unicode.hpp"

namespace adze::text {

namespace {

using Symbol = SentencePieceScratch::Symbol;
using Candidate = SentencePieceScratch::Candidate;

bool later(const Candidate& a, const Candidate& b) { return a.score != b.score ? a.score < b.score : a.left > b.left; }

}  // namespace

bool SentencePieceBpe::is_mergeable(TokenId id) const {
  if (spec_->types.empty()) return true;
  const TokenType type = spec_->types[static_cast<std::size_t>(id)];
  return type == TokenType::normal || type == TokenType::user_defined;
}

void SentencePieceBpe::create(const TokenizerSpec& spec, const TokenIndex& index) {
  spec_ = &spec;
  index_ = &index;
  cuts_.create(spec);
  byte_tokens_ = find_byte_tokens(spec.types, index);
  for (const std::string_view token : spec.tokens) longest_ = std::max(longest_, token.size());
}

void SentencePieceBpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  SentencePieceScratch scratch;
  bool after_unknown = false;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = cuts_.next(piece, at);
    encode_word(piece.substr(at, end - at), out, scratch, after_unknown);
    at = end;
  }
}

void SentencePieceBpe::encode_word(std::string_view word, std::vector<TokenId>& out, SentencePieceScratch& scratch,
                                   bool& after_unknown) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (std::size_t at = 0; at < word.size();) {
    const std::uint32_t bytes = code_point_at(word, at).bytes;
    const auto id = index_->find(word.substr(at, bytes));
    const auto here = static_cast<std::int32_t>(symbols.size());
    symbols.push_back(
        {here - 1, here + 1, static_cast<std::uint32_t>(at), bytes, id && is_mergeable(*id) ? *id : TokenId{-1}});
    at += bytes;
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || symbol(left).next < 0) return false;
    const Symbol& a = symbol(left);
    const std::uint32_t size = a.size + symbol(a.next).size;
    if (size > longest_) return false;
    const auto id = index_->find(word.substr(a.begin, size));
    if (!id || !is_mergeable(*id)) return false;
    heap.push_back({spec_->scores[static_cast<std::size_t>(*id)], left, size, *id});
    return true;
  };
  for (std::int32_t i = 0; symbol(i).next >= 0; ++i) offer(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbol(best.left);
    if (left.size == 0 || left.next < 0 || left.size + symbol(left.next).size != best.size) continue;
    Symbol& right = symbol(left.next);
    left.size = best.size;
    left.id = best.result;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.left;
    if (offer(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (offer(best.left)) std::push_heap(heap.begin(), heap.end(), later);
  }
  for (std::int32_t i = 0; i >= 0; i = symbol(i).next) {
    const Symbol& s = symbol(i);
    if (s.id >= 0) {
      out.push_back(s.id);
      after_unknown = false;
    } else {
      append_unknown(word.substr(s.begin, s.size), *spec_, byte_tokens_, after_unknown, out);
    }
  }
}

}  // namespace adze::text
