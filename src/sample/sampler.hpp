// From a row of logits to a token. The chain, in this order (the usual one of local runtimes: truncation looks at the
// untempered distribution):
//
//   mask, ban, logit bias -> repetition, presence, frequency penalties -> DRY -> top-k -> typical-p -> top-p -> min-p
//   -> temperature -> draw
//
// The draw adds Gumbel noise of (seed, position, token) to the processed logits and takes the argmax, so a position's
// token depends only on its logits, the history that the penalties see, the seed and the position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "sample/chain.hpp"
#include "sample/parameters.hpp"
#include "sample/token_mask.hpp"

namespace adze::sample {

struct LogProbabilities;

// Working memory, shared by all samplers of one thread. Each part grows to its full size when it is first needed; after
// that, sampling allocates nothing.
class Scratch {
 public:
  // `longest_history`: tokens that any history will have.
  Scratch(int vocabulary, std::int64_t longest_history);

 private:
  friend class Sampler;
  friend void log_probabilities(const Row& row, std::int32_t drawn, int top, Scratch& scratch, LogProbabilities& out);
  std::size_t vocabulary_;
  std::vector<float> row_;                 // [V]
  std::vector<float> maxima_;              // [V / kMaximaBlock], of row_
  std::vector<float> weights_;             // [V]
  std::vector<std::int32_t> counts_;       // [V], zeros between calls
  std::vector<std::int32_t> dry_lengths_;  // [history]
  Candidates candidates_;
};

// Every logit of the row is finite; rows with maxima are known to be.
bool is_finite(const Row& row);

// What is asked of one position on top of the request's parameters.
struct SampleOptions {
  TokenMask mask{};  // of exactly mask_words(vocabulary) words, or empty
};

// Immutable; any number of threads may sample with it, each with its own Scratch.
class Sampler {
 public:
  // Errors: those of validate().
  static Result<Sampler> create(SamplerParameters parameters, int vocabulary);

  // history: the tokens before `position`, the prompt's included (the penalties look at its end).
  // Errors: non_finite when a logit is NaN or infinite, invalid_argument when no token is left.
  Result<std::int32_t> sample(const Row& row, std::span<const std::int32_t> history, std::int64_t position,
                              Scratch& scratch, const SampleOptions& options = {}) const;
  Result<std::int32_t> sample(std::span<const float> logits, std::span<const std::int32_t> history,
                              std::int64_t position, Scratch& scratch, const SampleOptions& options = {}) const {
    return sample(Row{logits}, history, position, scratch, options);
  }

  const SamplerParameters& parameters() const { return parameters_; }

 private:
  Sampler() = default;
  // Truncates and draws.
  std::int32_t pick(const Row& row, float max, PositionNoise noise, Scratch& scratch) const;
  // The maxima of scratch.row_, which is `given` edited, where only few blocks can have changed; else none.
  std::span<const float> edited_maxima(const Row& given, std::span<const std::int32_t> history, TokenMask mask,
                                       Scratch& scratch) const;
  void edit(std::span<float> row, std::span<const std::int32_t> history, TokenMask mask, Scratch& scratch) const;
  // Why no token is left of a row of logits.
  Error nothing_left(TokenMask mask, std::int64_t position) const;

  SamplerParameters parameters_;
  int vocabulary_ = 0;
  bool has_penalties_ = false;
  bool has_dry_ = false;
  bool edits_ = false;                  // a row is changed before tokens are drawn from it, whatever the mask
  std::vector<std::uint8_t> breakers_;  // [V] when DRY is on
  std::vector<std::uint32_t> allowed_;  // a TokenMask's words when only some are allowed
};

}  // namespace adze::sample
