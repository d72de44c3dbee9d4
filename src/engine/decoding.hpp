// A request while it is being answered: what it asked for, and how far its text has come. No clock, no input or output:
// the caller steps it (request_loop.hpp) and looks at what became of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adze/adze.hpp"
#include "engine/sequence.hpp"
#include "engine/stop_matcher.hpp"
#include "sample/log_probabilities.hpp"
#include "sample/sampler.hpp"
#include "text/detokenizer.hpp"

namespace adze::engine {

struct AnswerSpec {
  sample::Sampler sampler;
  StopMatcher stops;
  std::vector<std::int32_t> stop_ids;  // sorted; the model's own end-of-generation tokens are in it, unless ignored
  std::int64_t max_tokens = 0;         // >= 0
  bool hash_logits = false;
  int top_logprobs = -1;  // -1: none are asked for; else of each token and of so many of the best
  std::function<void(std::span<const std::int32_t>, std::span<std::uint32_t>)> token_mask{};  // GenerateOptions
};

class Decoding {
 public:
  // Goes on from the end of `sequence`, which must have waiting rows and outlive the decoding. `context`: the most
  // tokens that the sequence may grow to.
  Decoding(Sequence& sequence, AnswerSpec spec, std::shared_ptr<const text::Tokenizer> tokenizer, std::int64_t context);

  Sequence& sequence() { return *sequence_; }
  bool finished() const { return finish_.has_value(); }

  // Samples the token after the sequence's last one from that one's logits [vocabulary], and finishes when it ends the
  // answer. `scratch` serves any number of decodings. Returns the token; -1 when there is none (an error).
  std::int32_t accept(const sample::Row& row, sample::Scratch& scratch);
  // Finishes with FinishReason::error.
  void fail(Error error);
  void cancel();

  // Text that has become certain since the last call; whole UTF-8 characters. Valid until the next accept().
  std::string_view take_text();
  std::int64_t most_tokens_left() const;
  const sample::Sampler& sampler() const { return spec_.sampler; }

  FinishReason finish() const { return *finish_; }
  const std::optional<Error>& error() const { return error_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  const std::string& text() const { return text_; }
  const std::vector<sample::LogProbabilities>& log_probabilities() const { return log_probabilities_; }
  std::string_view stop_match() const { return spec_.stops.match(); }
  std::int64_t sampled_tokens() const { return sampled_; }
  // Over the digests of all sampled rows, in order; empty unless the spec asked for it.
  std::string logits_hash() const;

 private:
  void close(FinishReason reason);

  Sequence* sequence_;
  AnswerSpec spec_;
  std::int64_t context_;
  text::StreamDecoder decoder_;
  std::vector<std::int32_t> ids_;
  std::string text_;
  std::size_t taken_ = 0;  // bytes of text_ that take_text() gave out
  std::int64_t sampled_ = 0;
  std::vector<Digest> row_digests_;
  std::vector<sample::LogProbabilities> log_probabilities_;  // of ids_, where they are asked for
  std::vector<std::uint32_t> mask_;
  std::optional<FinishReason> finish_;
  std::optional<Error> error_;
};

}  // namespace adze::engine
