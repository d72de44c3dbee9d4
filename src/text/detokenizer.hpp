// Token ids to text, one at a time, for streams: what it returns is always whole UTF-8 characters, and the pieces
// joined are what Tokenizer::decode gives for all ids at once.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.hpp"

namespace adze::text {

// One stream; not thread-safe. Holds back at most three bytes: the start of a character that later tokens may complete.
class StreamDecoder {
 public:
  // continues: the text goes on from earlier text, so a leading space is kept even where decode would drop it. A
  // model's answer is such a text: the prompt stands before it.
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options = {}, bool continues = true);

  // The text that became certain with this token; may be empty. Bytes that cannot start or continue a character give
  // U+FFFD.
  std::string push(TokenId id);
  // The end of the stream: an unfinished character becomes U+FFFD. The decoder can be used again.
  std::string flush();

 private:
  std::string take(bool at_end);
  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeOptions options_;
  bool continues_;
  bool strip_space_;
  std::string pending_;
};

}  // namespace adze::text
