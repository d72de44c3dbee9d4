// A request while it is being answered: what it asked for, and how far its text has come. No clock, no input or output:
// the caller steps it (step_loop.hpp) and looks at what became of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adze/adze.hpp"
#include "engine/sequence.hpp"
#include "engine/stop_matcher.hpp"
#include "sample/sampler.hpp"
#include "text/detokenizer.hpp"

namespace adze::engine {

struct Request {
  sample::Sampler sampler;
  StopMatcher stops;
  std::vector<std::int32_t> stop_ids;  // sorted; the model's own end-of-generation tokens are in it, unless ignored
  std::int64_t max_tokens = 0;         // >= 0
  bool hash_logits = false;
};

class Decoding {
 public:
  // Goes on from the end of `sequence`, which must have waiting rows and outlive the decoding. `context`: the most
  // tokens that the sequence may grow to.
  Decoding(Sequence& sequence, Request request, std::shared_ptr<const text::Tokenizer> tokenizer, std::int64_t context);

  Sequence& sequence() { return *sequence_; }
  bool finished() const { return finish_.has_value(); }

  // Samples the token after the sequence's last one from that one's logits [vocabulary], and finishes when it ends the
  // answer. `scratch` serves any number of decodings.
  void accept(const sample::Row& row, sample::Scratch& scratch);
  // Finishes with FinishReason::error.
  void fail(Error error);
  void cancel();

  // Text that has become certain since the last call; whole UTF-8 characters. Valid until the next accept().
  std::string_view take_text();

  FinishReason finish() const { return *finish_; }
  const std::optional<Error>& error() const { return error_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  const std::string& text() const { return text_; }
  std::string_view stop_match() const { return request_.stops.match(); }
  std::int64_t sampled_tokens() const { return sampled_; }
  // Over the digests of all sampled rows, in order; empty unless the request asked for it.
  std::string logits_hash() const;

 private:
  void close(FinishReason reason);

  Sequence* sequence_;
  Request request_;
  std::int64_t context_;
  text::StreamDecoder decoder_;
  std::vector<std::int32_t> ids_;
  std::string text_;
  std::size_t taken_ = 0;  // bytes of text_ that take_text() gave out
  std::int64_t sampled_ = 0;
  std::vector<Digest> row_digests_;
  std::optional<FinishReason> finish_;
  std::optional<Error> error_;
};

}  // namespace adze::engine
