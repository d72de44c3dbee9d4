#include "engine/decoding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.hpp"
#include "base/hash.hpp"

namespace adze::engine {

Decoding::Decoding(Sequence& sequence, AnswerSpec spec, std::shared_ptr<const text::Tokenizer> tokenizer,
                   std::int64_t context)
    : sequence_(&sequence), spec_(std::move(spec)), context_(context), decoder_(std::move(tokenizer)) {
  ADZE_CHECK(std::is_sorted(spec_.stop_ids.begin(), spec_.stop_ids.end()), "stop ids are not sorted");
  if (spec_.max_tokens == 0) {
    close(FinishReason::length);
    return;
  }
  ADZE_CHECK(sequence.waiting() > 0, "nothing to compute: the logits of the last token are gone");
  const std::int64_t most = std::max<std::int64_t>(std::min(spec_.max_tokens, context - sequence.length()), 0);
  ids_.reserve(static_cast<std::size_t>(most));
  sequence.ids.reserve(static_cast<std::size_t>(sequence.length() + most));
}

std::int32_t Decoding::accept(const sample::Row& row, sample::Scratch& scratch) {
  ADZE_CHECK(!finished(), "a token after the end");
  sample::SampleOptions how;
  if (spec_.token_mask) {
    mask_.assign(sample::mask_words(static_cast<int>(row.logits.size())), ~std::uint32_t{0});
    try {
      spec_.token_mask(ids_, mask_);
    } catch (const std::exception& thrown) {
      fail({.code = ErrorCode::invalid_argument,
            .message = fmt::format("the request's token mask failed: {}", thrown.what()),
            .hint = {}});
      return -1;
    }
    how.mask = {mask_};
  }
  const auto token = spec_.sampler.sample(row, sequence_->ids, sequence_->length(), scratch, how);
  if (!token) {
    fail(token.error());
    return -1;
  }
  ++sampled_;
  if (spec_.hash_logits) row_digests_.push_back(digest(std::as_bytes(row.logits)));
  if (std::binary_search(spec_.stop_ids.begin(), spec_.stop_ids.end(), *token)) {
    close(FinishReason::stop);
    return *token;
  }
  if (spec_.top_logprobs >= 0) {
    sample::log_probabilities(row, *token, spec_.top_logprobs, scratch, log_probabilities_.emplace_back());
  }
  ids_.push_back(*token);
  sequence_->ids.push_back(*token);
  if (spec_.stops.feed(decoder_.push(*token), text_)) {
    finish_ = FinishReason::stop;
    return *token;
  }
  if (sampled_ >= spec_.max_tokens || sequence_->length() >= context_) close(FinishReason::length);
  return *token;
}

std::int64_t Decoding::most_tokens_left() const {
  return std::max<std::int64_t>(std::min(spec_.max_tokens - sampled_, context_ - sequence_->length()), 0);
}

// The end came from outside the text: a character that was begun is broken, and what a stop string might have swallowed
// is text after all. The sign for the broken character may complete a stop string.
void Decoding::close(FinishReason reason) {
  finish_ = reason;
  if (spec_.stops.feed(decoder_.flush(), text_)) {
    finish_ = FinishReason::stop;
  } else {
    spec_.stops.flush(text_);
  }
}

void Decoding::fail(Error error) {
  finish_ = FinishReason::error;
  error_ = std::move(error);
}

void Decoding::cancel() {
  if (!finished()) finish_ = FinishReason::cancelled;
}

std::string_view Decoding::take_text() {
  const std::string_view fresh = std::string_view(text_).substr(taken_);
  taken_ = text_.size();
  return fresh;
}

std::string Decoding::logits_hash() const {
  if (!spec_.hash_logits) return {};
  return to_hex(digest(std::as_bytes(std::span(row_digests_))));
}

}  // namespace adze::engine
