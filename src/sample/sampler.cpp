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

}  // namespace

Scratch::Scratch(int vocabulary, std::int64_t longest_history) : vocabulary_(static_cast<std::size_t>(vocabulary)) {
  // Address space only, until they are filled.
  dry_lengths_.reserve(static_cast<std::size_t>(longest_history));
  candidates_.reserve(vocabulary_);
}

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
  sampler.parameters_ = std::move(parameters);
  return sampler;
}

void Sampler::edit(std::span<float> row, std::span<const std::int32_t> history, Scratch& scratch) const {
  for (const auto& [id, bias] : parameters_.logit_bias) row[static_cast<std::size_t>(id)] += bias;
  if (has_penalties_ || has_dry_) scratch.counts_.resize(scratch.vocabulary_);
  if (has_penalties_) apply_penalties(row, tail(history, parameters_.penalty_window), parameters_, scratch.counts_);
  if (has_dry_) {
    const auto recent = tail(history, parameters_.dry_window);
    apply_dry(row, recent, parameters_, breakers_, scratch.dry_lengths_, scratch.counts_);
  }
  for (const std::int32_t id : parameters_.banned) {
    row[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
}

Result<std::int32_t> Sampler::sample(const Row& given, std::span<const std::int32_t> history, std::int64_t position,
                                     Scratch& scratch) const {
  const std::span<const float> logits = given.logits;
  ADZE_CHECK(logits.size() == static_cast<std::size_t>(vocabulary_), "{} logits, vocabulary {}", logits.size(),
             vocabulary_);
  RowScan scan = scan_row(given);
  if (!scan.finite) {
    return fail(ErrorCode::non_finite, fmt::format("a logit at position {} is not a finite number", position),
                "the weights or a kernel are at fault: check the file's digest, then try --compute f32");
  }
  Row row = given;
  if (has_penalties_ || has_dry_ || !parameters_.logit_bias.empty() || !parameters_.banned.empty()) {
    scratch.row_.assign(logits.begin(), logits.end());
    edit(scratch.row_, history, scratch);
    row = {scratch.row_};
    scan = scan_row(row);
    if (!(scan.max <= std::numeric_limits<float>::max())) {
      return fail(ErrorCode::invalid_argument, "penalties and biases push a logit beyond the range of float32");
    }
    if (std::isinf(scan.max)) return fail(ErrorCode::invalid_argument, "every token of the vocabulary is banned");
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
