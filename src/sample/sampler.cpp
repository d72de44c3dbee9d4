#include "sample/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.hpp"

namespace adze::sample {
namespace {

// The last `window` tokens; all of them for -1.
std::span<const std::int32_t> tail(std::span<const std::int32_t> history, int window) {
  if (window < 0) return history;
  return history.last(std::min(history.size(), static_cast<std::size_t>(window)));
}

constexpr float kNever = -std::numeric_limits<float>::infinity();

void apply_mask(std::span<float> row, std::span<const std::uint32_t> words) {
  for (std::size_t w = 0; w < words.size(); ++w) {
    const std::uint32_t word = words[w];
    if (word == ~std::uint32_t{0}) continue;
    const std::size_t first = w * kMaskBits;
    const std::size_t count = std::min(kMaskBits, row.size() - first);
    for (std::size_t i = 0; i < count; ++i) row[first + i] = (word >> i & 1) != 0 ? row[first + i] : kNever;
  }
}

}  // namespace

Scratch::Scratch(int vocabulary, std::int64_t longest_history) : vocabulary_(static_cast<std::size_t>(vocabulary)) {
  // Address space only, until they are filled.
  dry_lengths_.reserve(static_cast<std::size_t>(longest_history));
  candidates_.reserve(vocabulary_);
}

bool is_finite(const Row& row) { return scan_row(row).finite; }

Result<Sampler> Sampler::create(SamplerParameters parameters, int vocabulary) {
  ADZE_TRY_STATUS(validate(parameters, vocabulary));
  Sampler sampler;
  sampler.vocabulary_ = vocabulary;
  sampler.has_penalties_ =
      parameters.penalty_window != 0 && (parameters.repetition_penalty != 1.0f || parameters.presence_penalty != 0.0f ||
                                         parameters.frequency_penalty != 0.0f);
  sampler.has_dry_ = parameters.dry_multiplier > 0.0f && parameters.dry_window != 0;
  if (sampler.has_dry_) {
    sampler.breakers_.assign(static_cast<std::size_t>(vocabulary), 0);
    for (const std::int32_t id : parameters.dry_breakers) sampler.breakers_[static_cast<std::size_t>(id)] = 1;
  }
  if (!parameters.allowed.empty()) {
    sampler.allowed_.assign(mask_words(vocabulary), 0);
    for (const std::int32_t id : parameters.allowed) {
      sampler.allowed_[static_cast<std::size_t>(id) / kMaskBits] |= 1u << (static_cast<std::size_t>(id) % kMaskBits);
    }
  }
  sampler.edits_ = sampler.has_penalties_ || sampler.has_dry_ || !parameters.logit_bias.empty() ||
                   !parameters.banned.empty() || !parameters.allowed.empty();
  sampler.parameters_ = std::move(parameters);
  return sampler;
}

void Sampler::edit(std::span<float> row, std::span<const std::int32_t> history, TokenMask mask,
                   Scratch& scratch) const {
  for (const auto& [id, bias] : parameters_.logit_bias) row[static_cast<std::size_t>(id)] += bias;
  if (has_penalties_ || has_dry_) scratch.counts_.resize(scratch.vocabulary_);
  if (has_penalties_) apply_penalties(row, tail(history, parameters_.penalty_window), parameters_, scratch.counts_);
  if (has_dry_) {
    const auto recent = tail(history, parameters_.dry_window);
    apply_dry(row, recent, parameters_, breakers_, scratch.dry_lengths_, scratch.counts_);
  }
  for (const std::int32_t id : parameters_.banned) {
    row[static_cast<std::size_t>(id)] = kNever;
  }
  apply_mask(row, allowed_);
  apply_mask(row, mask.words);
}

Error Sampler::nothing_left(TokenMask mask, std::int64_t position) const {
  const bool has_lists = !parameters_.banned.empty() || !parameters_.allowed.empty();
  if (mask.empty()) {
    return {ErrorCode::invalid_argument,
            parameters_.allowed.empty() ? "every token of the vocabulary is banned"
                                        : "every one of the allowed tokens is banned as well",
            "leave tokens out of the banned ones"};
  }
  return {ErrorCode::invalid_argument,
          has_lists ? fmt::format("the grammar, the allowed and the banned tokens together leave none for position {}",
                                  position)
                    : fmt::format("the grammar allows no token of the vocabulary at position {}", position),
          has_lists ? "allow or unban the tokens that the grammar needs"
                    : "the grammar cannot go on from this text: let it end there, or widen it"};
}

// Reading a whole row again takes as long as copying it. Masks, allowed ids and DRY may change every block.
std::span<const float> Sampler::edited_maxima(const Row& given, std::span<const std::int32_t> history, TokenMask mask,
                                              Scratch& scratch) const {
  const auto recent = has_penalties_ ? tail(history, parameters_.penalty_window) : std::span<const std::int32_t>();
  const std::size_t touched = recent.size() + parameters_.logit_bias.size() + parameters_.banned.size();
  if (given.maxima.empty() || !mask.empty() || !allowed_.empty() || has_dry_ || touched > given.maxima.size() / 2) {
    return {};
  }
  scratch.maxima_.assign(given.maxima.begin(), given.maxima.end());
  const auto update = [&](std::int32_t id) {
    const std::size_t block = static_cast<std::size_t>(id) / kMaximaBlock, first = block * kMaximaBlock;
    const auto values = std::span(scratch.row_).subspan(first, std::min(kMaximaBlock, scratch.row_.size() - first));
    scratch.maxima_[block] = *std::ranges::max_element(values);
  };
  for (const std::int32_t id : recent) update(id);
  for (const auto& [id, bias] : parameters_.logit_bias) update(id);
  for (const std::int32_t id : parameters_.banned) update(id);
  return scratch.maxima_;
}

Result<std::int32_t> Sampler::sample(const Row& given, std::span<const std::int32_t> history, std::int64_t position,
                                     Scratch& scratch, const SampleOptions& options) const {
  const std::span<const float> logits = given.logits;
  ADZE_CHECK(logits.size() == static_cast<std::size_t>(vocabulary_), "{} logits, vocabulary {}", logits.size(),
             vocabulary_);
  ADZE_CHECK(options.mask.empty() || options.mask.words.size() == mask_words(vocabulary_), "a mask of {} words",
             options.mask.words.size());
  RowScan scan = scan_row(given);
  if (!scan.finite) {
    return fail(ErrorCode::non_finite, fmt::format("a logit at position {} is not a finite number", position),
                "the weights or a kernel are at fault: check the file's digest, then try --compute f32");
  }
  Row row = given;
  if (edits_ || !options.mask.empty()) {
    scratch.row_.assign(logits.begin(), logits.end());
    edit(scratch.row_, history, options.mask, scratch);
    row = {scratch.row_, edited_maxima(given, history, options.mask, scratch)};
    scan = scan_row(row);
    if (!(scan.max <= std::numeric_limits<float>::max())) {
      return fail(ErrorCode::invalid_argument, "penalties and biases push a logit beyond the range of float32");
    }
    if (std::isinf(scan.max)) return tl::unexpected(nothing_left(options.mask, position));
  }
  if (parameters_.greedy()) return first_index_of(row, scan.max);

  return pick(row, scan.max, PositionNoise(parameters_.seed, static_cast<std::uint64_t>(position)), scratch);
}

// The first stage in force reads the row, the others narrow what it took.
std::int32_t Sampler::pick(const Row& from, float max, PositionNoise noise, Scratch& scratch) const {
  const SamplerParameters& p = parameters_;
  const std::span<const float> row = from.logits;
  const bool top_k = p.top_k > 0 && p.top_k < vocabulary_;
  const bool typical = p.typical_p < 1.0f;
  bool top_p = p.top_p < 1.0f;
  bool min_p = p.min_p > 0.0f;
  Candidates& candidates = scratch.candidates_;
  if (top_k) {
    take_top_k(from, p.top_k, candidates);
  } else if (typical) {
    take_all(row, candidates);
  } else if (top_p) {
    scratch.weights_.resize(scratch.vocabulary_);
    take_top_p(row, max, p.top_p, scratch.weights_, candidates);
    top_p = false;
  } else if (min_p) {
    take_min_p(row, max, p.min_p, candidates);
    min_p = false;
  } else {
    return draw_from_row(row, max, p.temperature, noise);
  }
  if (typical) keep_typical(candidates, p.typical_p);
  if (top_p) keep_top_p(candidates, p.top_p);
  if (min_p) keep_min_p(candidates, p.min_p);
  return draw(candidates, p.temperature, noise);
}

}  // namespace adze::sample
