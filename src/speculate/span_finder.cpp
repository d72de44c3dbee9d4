#include "speculate/span_finder.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "sample/random.hpp"

namespace adze::speculate {
namespace {

constexpr std::size_t kFirstChains = 256;

}  // namespace

std::size_t SpanFinder::chain_of(std::span<const std::int32_t> text, std::size_t position) const {
  std::uint64_t key = 0;
  for (std::size_t i = position - kGram; i < position; ++i) {
    key = (key ^ static_cast<std::uint32_t>(text[i])) * sample::kGolden;
  }
  return static_cast<std::size_t>(key >> 32) & (heads_.size() - 1);
}

void SpanFinder::link(std::span<const std::int32_t> text, std::size_t position) {
  std::int32_t& head = heads_[chain_of(text, position)];
  previous_[position] = head;
  head = static_cast<std::int32_t>(position);
}

void SpanFinder::eat(std::span<const std::int32_t> text) {
  std::size_t known = std::max<std::size_t>(previous_.size(), kGram);
  if (text.size() < known) return;
  previous_.resize(text.size() + 1, -1);
  const std::size_t chains = std::clamp(std::bit_ceil(text.size()), kFirstChains, kMostChains);
  if (heads_.size() < chains) {
    heads_.assign(chains, -1);
    known = kGram;
  }
  for (std::size_t position = known; position <= text.size(); ++position) link(text, position);
}

Span SpanFinder::find(std::span<const std::int32_t> text) const {
  Span best;
  if (text.size() < kGram || heads_.empty()) return best;
  ADZE_CHECK(previous_.size() == text.size() + 1, "{} tokens were taken in of {}", previous_.size(), text.size());
  const auto end = static_cast<std::int64_t>(text.size());
  std::int32_t at = previous_[text.size()];
  for (int place = 0; place < kMostPlaces && at >= 0; ++place, at = previous_[static_cast<std::size_t>(at)]) {
    int length = 0;
    const std::int64_t longest = std::min<std::int64_t>(at, kLongestMatch);
    while (length < longest &&
           text[static_cast<std::size_t>(at - 1 - length)] == text[static_cast<std::size_t>(end - 1 - length)]) {
      ++length;
    }
    if (length < kGram) continue;  // another gram of the same chain
    if (length > best.length) {
      best = {.next = at, .length = length, .places = 1};
    } else if (length == best.length &&
               text[static_cast<std::size_t>(at)] == text[static_cast<std::size_t>(best.next)]) {
      ++best.places;
    }
  }
  return best;
}

}  // namespace adze::speculate
