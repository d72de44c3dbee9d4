// The stages of the sampler, each one a small function with one definition. They edit a row of logits, or narrow a list
// of candidates. Internal to the room.
//
// Precision: logits and probabilities are float32, sums of probabilities are double in a fixed order, the draw is
// double. exp() is Adze's own (plain float32 arithmetic, relative error < 2e-7), so that a seed gives the same text on
// every machine whatever its C library.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample/parameters.hpp"
#include "sample/random.hpp"

namespace adze::sample {

struct Candidate {
  std::int32_t id = 0;
  float logit = 0;
  float p = 0;  // set by normalise(): of the candidates that are left
};
using Candidates = std::vector<Candidate>;

// The order of everything below: higher logit first, then the lower id.
inline bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// --- edits of a row, float32 [V] ------------------------------------------------------------------------------------

// repetition: l > 0 ? l / r : l * r; then l -= count * frequency + presence; for tokens that occur in `recent`.
// `counts` [V] is all zeros before and after.
void apply_penalties(std::span<float> row, std::span<const std::int32_t> recent, const SamplerParameters& parameters,
                     std::vector<std::int32_t>& counts);

// DRY: a token that would extend a repeat of the last n >= allowed_length tokens of `recent` loses
// multiplier * base^(n - allowed_length), n the longest such repeat. `breakers` [V]: 1 where a repeat ends.
// Linear in `recent`. `lengths` and `longest` [V] are scratch; `longest` is all zeros before and after.
void apply_dry(std::span<float> row, std::span<const std::int32_t> recent, const SamplerParameters& parameters,
               std::span<const std::uint8_t> breakers, std::vector<std::int32_t>& lengths,
               std::vector<std::int32_t>& longest);

// --- one pass over a row --------------------------------------------------------------------------------------------

// A position's logits [V]; and the largest of each kMaximaBlock of them, the last of fewer, from whoever has checked
// that all are finite, so that most need not be read again. Empty: nobody has.
inline constexpr std::size_t kMaximaBlock = 64;
struct Row {
  std::span<const float> logits;
  std::span<const float> maxima{};
};

struct RowScan {
  float max = 0;
  bool finite = true;  // every value
};
RowScan scan_row(const Row& row);
std::int32_t first_index_of(const Row& row, float value);

// --- from a row to candidates: tokens at -infinity are never candidates
// ------------------------------------------------

// The k best, best first.
void take_top_k(const Row& row, int k, Candidates& out);
// The fewest best whose mass reaches top_p, best first. `max` is the row's; `weights` [V] is scratch.
void take_top_p(std::span<const float> row, float max, float top_p, std::vector<float>& weights, Candidates& out);
// Those with p >= min_p * the largest p, in the order of their ids.
void take_min_p(std::span<const float> row, float max, float min_p, Candidates& out);
// All of them, in the order of their ids.
void take_all(std::span<const float> row, Candidates& out);

// --- fewer candidates: the same stages behind another one ------------------------------------------------------------

// weights [V] = exp(row - max), max the row's; returns their sum, of doubles in an order that only V decides.
double weigh(std::span<const float> row, float max, std::span<float> weights);

// exp(x) for x <= 0; 0 below -87.7.
float exp_negative(float x);
// Sets p of every candidate to its share of the sum of exp(logit); returns the log of that sum.
double normalise(Candidates& candidates);

// Keep the most typical: those whose surprise -log p is nearest to the entropy, up to a mass of `typical_p`.
void keep_typical(Candidates& candidates, float typical_p);
// Keep the fewest best whose mass reaches top_p.
void keep_top_p(Candidates& candidates, float top_p);
// Keep those with p >= min_p * the largest p.
void keep_min_p(Candidates& candidates, float min_p);

// --- the draw: argmax of logit / temperature + Gumbel noise, which follows softmax(logit / temperature)
// ---------------

std::int32_t draw(const Candidates& candidates, float temperature, PositionNoise noise);
// From the whole row, whose maximum is `max`.
std::int32_t draw_from_row(std::span<const float> row, float max, float temperature, PositionNoise noise);

}  // namespace adze::sample
