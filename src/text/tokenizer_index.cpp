#include "text/tokenizer_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/limits.hpp"
#include "text/unicode.hpp"

namespace adze::text {

namespace {

constexpr std::uint64_t kSeeds = 4;  // tries before a vocabulary counts as hostile

tl::unexpected<Error> collision_error(std::string_view what) {
  return fail(ErrorCode::limit_exceeded,
              fmt::format("{} of the vocabulary collide in more than {} places", what, limits::kTokenizerMaxProbes),
              "the file was probably made to slow programs down; do not use it");
}

std::size_t capacity_for(std::size_t count) { return std::bit_ceil(std::max<std::size_t>(count + count / 4, 4)); }

std::string shown(std::string_view text) {
  std::string out;
  append_valid_utf8(text.substr(0, 60), out);
  return out;
}

}  // namespace

Status TokenIndex::build(std::span<const std::string_view> tokens) {
  tokens_ = tokens;
  const std::size_t mask = capacity_for(tokens.size()) - 1;
  for (seed_ = 1; seed_ <= kSeeds; ++seed_) {
    slots_.assign(mask + 1, -1);
    bool crowded = false;
    for (std::size_t id = 0; id < tokens.size() && !crowded; ++id) {
      std::size_t slot = static_cast<std::size_t>(hash_text(tokens[id], seed_)) & mask;
      std::size_t probes = 0;
      while (slots_[slot] >= 0 && tokens[static_cast<std::size_t>(slots_[slot])] != tokens[id]) {
        slot = (slot + 1) & mask;
        if (++probes > limits::kTokenizerMaxProbes) {
          crowded = true;
          break;
        }
      }
      if (!crowded && slots_[slot] < 0) slots_[slot] = static_cast<TokenId>(id);
    }
    if (!crowded) return {};
  }
  return collision_error("tokens");
}

std::optional<TokenId> TokenIndex::find_hashed(std::string_view text, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = static_cast<std::size_t>(hash) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (tokens_[static_cast<std::size_t>(slots_[slot])] == text) return slots_[slot];
  }
  return std::nullopt;
}

bool MergeTable::insert(std::uint64_t key, std::size_t rank) {
  std::size_t slot = start(key);
  for (std::size_t probes = 0; entries_[slot] != kEmpty; ++probes) {
    if (entries_[slot] >> kRankBits == key) return true;
    if (probes > limits::kTokenizerMaxProbes) return false;
    slot = (slot + 1) & mask_;
  }
  entries_[slot] = key << kRankBits | rank;
  return true;
}

Status MergeTable::read_block(std::span<const std::string_view> merges, std::size_t first, std::size_t count,
                              std::span<const std::string_view> tokens, const TokenIndex& index, TokenId& guess,
                              Line* block) const {
  const auto bad = [&](std::size_t i, std::string_view why) {
    return fail(ErrorCode::corrupt_file, fmt::format("merge {} (\"{}\") {}", first + i, shown(merges[first + i]), why),
                "the vocabulary and the merges do not belong together; get the file again");
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view line = merges[first + i];
    const std::size_t space = line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size()) return bad(i, "does not have two parts");
    Line& parts = block[i];
    parts.left = line.substr(0, space);
    parts.right = line.substr(space + 1);
    parts.left_hash = index.hash(parts.left);
    parts.right_hash = index.hash(parts.right);
    index.prefetch(parts.left_hash);
    index.prefetch(parts.right_hash);
  }
  std::string joined;
  for (std::size_t i = 0; i < count; ++i) {
    Line& line = block[i];
    const auto left = index.find_hashed(line.left, line.left_hash);
    const auto right = index.find_hashed(line.right, line.right_hash);
    if (!left || !right) return bad(i, "joins text that is not a token");
    joined.assign(line.left).append(line.right);
    std::optional<TokenId> result = guess;
    if (static_cast<std::size_t>(guess) >= tokens.size() || tokens[static_cast<std::size_t>(guess)] != joined) {
      result = index.find(joined);
      if (!result) return bad(i, "makes text that is not a token");
    }
    guess = *result + 1;
    line.key = key_of(*left, *right);
    line.result = *result;
    __builtin_prefetch(&entries_[start(line.key)]);
  }
  return {};
}

Status MergeTable::build(std::span<const std::string_view> merges, std::span<const std::string_view> tokens,
                         const TokenIndex& index) {
  if (merges.size() > limits::kTokenizerMaxMerges) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("the vocabulary has {} merges, more than {}", merges.size(), limits::kTokenizerMaxMerges));
  }
  static_assert(limits::kMaxVocabulary == 1 << kIdBits && limits::kTokenizerMaxMerges == 1u << kRankBits);
  if (tokens.size() >= limits::kMaxVocabulary) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("the vocabulary has {} tokens, not fewer than {}", tokens.size(), limits::kMaxVocabulary));
  }
  results_.resize(merges.size());
  std::array<Line, 32> block;  // looked up together, so that their cache misses overlap
  for (seed_ = 1; seed_ <= kSeeds; ++seed_) {
    entries_.assign(capacity_for(merges.size()), kEmpty);
    mask_ = entries_.size() - 1;
    bool crowded = false;
    TokenId guess = 0;  // trained vocabularies list results in the order of their merges
    for (std::size_t first = 0; first < merges.size() && !crowded; first += block.size()) {
      const std::size_t count = std::min(block.size(), merges.size() - first);
      ADZE_TRY_STATUS(read_block(merges, first, count, tokens, index, guess, block.data()));
      for (std::size_t i = 0; i < count && !crowded; ++i) {
        results_[first + i] = block[i].result;
        crowded = !insert(block[i].key, first + i);
      }
    }
    if (!crowded) return {};
  }
  return collision_error("merges");
}

void PrefixSet::build(std::vector<Entry> entries) {
  std::erase_if(entries, [](const Entry& e) { return e.text.empty(); });
  // string_view compares bytes as unsigned, through char_traits<char>.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  entries_ = std::move(entries);
  std::array<std::uint32_t, 256> counts{};
  for (const Entry& e : entries_) ++counts[static_cast<unsigned char>(e.text[0])];
  first_[0] = 0;
  for (std::size_t b = 0; b < 256; ++b) first_[b + 1] = first_[b] + counts[b];
}

void PrefixSet::narrow(unsigned char byte, std::size_t depth, std::size_t& low, std::size_t& high) const {
  // Every entry in [low, high) is longer than `depth` and they agree before it.
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(entries_[i].text[depth]); };
  std::size_t end = high;
  for (std::size_t count = end - low; count > 0;) {  // first entry with at >= byte
    const std::size_t half = count / 2;
    if (at(low + half) < byte) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  std::size_t first_greater = low;
  for (std::size_t count = end - low; count > 0;) {
    const std::size_t half = count / 2;
    if (at(first_greater + half) <= byte) {
      first_greater += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  high = first_greater;
}

}  // namespace adze::text
